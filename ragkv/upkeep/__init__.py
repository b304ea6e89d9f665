"""What is kept: KV seen, pinned, evicted, verified; backups; what disagrees, mended."""
