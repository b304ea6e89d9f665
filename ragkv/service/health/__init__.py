"""Condition of the service's components, the engine among them, and its gauges."""
