"""Callers: who they are, what they may do, and how much."""
