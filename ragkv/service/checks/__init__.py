"""Checks and repair of what disagrees; removal of what is left over or old."""
