"""Documents: accept, read, change, list, remove; their chunks as rows."""
