"""Evaluation of the running service on a tenant's own questions: stitched against full prefill, and recall of
retrieval."""
