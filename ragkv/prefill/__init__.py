"""KV of chunks: what is missing, batch by batch, from an engine; writers in use."""
