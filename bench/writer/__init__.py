"""Training and evaluation of writers."""
