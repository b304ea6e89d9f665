"""Compression inside a chunk: which of its tokens keep their KV."""
