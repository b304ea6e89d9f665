"""Capacity planning: what stored KV takes, when loading it beats computing it, and when it pays."""
