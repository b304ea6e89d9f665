"""Eviction policies over traces of requests: `ragkv bench tiers`."""
