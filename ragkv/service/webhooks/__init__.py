"""Webhooks: signed messages to receivers of a tenant when a document is ready or failed."""
