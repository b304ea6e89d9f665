"""Scopes: what an API key, or a person who signed in, may do."""

from typing import Literal, get_args

KeyScope = Literal["metrics", "read", "write", "admin"]
"""metrics: /metrics, nothing else. read: ask, search, look. write: also upload, change, delete documents. admin: also
keys and whole collections."""

KEY_SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
"""Each includes those before it."""
