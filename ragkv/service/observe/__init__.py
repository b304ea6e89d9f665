"""Heartbeats and counters of the service's processes, in Redis."""
