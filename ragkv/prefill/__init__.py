"""KV of chunks under Transformers: prefill, writers, compression."""
