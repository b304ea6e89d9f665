"""Figures of answered questions."""
