"""Uploaded files, and their places in collections."""
