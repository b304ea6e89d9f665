"""Figures of answered questions, and the state of the engine."""
