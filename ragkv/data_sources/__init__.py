"""Folders and object stores that collections are kept in step with."""
