"""Calibration: the layers that select what to recompute, found for the served model on unlabelled text."""
