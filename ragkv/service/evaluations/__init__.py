"""Evaluations of the running service on a tenant's own questions."""
