"""Scopes: what an API key, or a person who signed in, may do."""

from typing import Literal, get_args

KeyScope = Literal["metrics", "read", "write", "admin"]
"""metrics: /metrics, nothing else. read: ask, search, look, rate answers. write: also upload, change and delete
documents, create and rename collections. admin: also keys, data sources, KV rules, and deletion of collections."""

KEY_SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
"""Each includes those before it."""
