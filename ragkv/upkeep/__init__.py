"""The KV that is kept: seen, pinned, evicted, verified."""
