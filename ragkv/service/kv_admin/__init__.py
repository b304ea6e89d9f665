"""Stored KV of tenants: usage, rules, pins, eviction, upload, verification."""
