"""Folders and object stores that collections are kept in sync with."""
