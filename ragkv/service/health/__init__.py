"""Condition of the service's components, and its gauges."""
