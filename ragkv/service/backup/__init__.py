"""Backups, and their restore."""
