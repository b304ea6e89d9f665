"""What is kept: KV seen, pinned, evicted, verified; backups."""
