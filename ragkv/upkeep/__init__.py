"""KV overview, pins, eviction, verification; backups; checks and repair of what disagrees."""
