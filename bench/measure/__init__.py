"""Measurements of the service for development: they use the tests' servers and are not in the package."""
