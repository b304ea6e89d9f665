"""Answers kept for questions that mean the same."""
