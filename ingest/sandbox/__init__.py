"""Parsing in a child process with limits: a file may cost its own ingestion, never the worker's life or time."""
