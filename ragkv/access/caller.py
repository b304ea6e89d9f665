"""The caller of a request and its scopes."""

from dataclasses import dataclass
from typing import Literal, get_args

KeyScope = Literal["read", "write", "admin"]
"""read: ask, search, look. write: also upload, change, delete documents. admin: also keys and whole collections."""

KEY_SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
"""Each includes those before it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of everything a request may see. Without a `key_id` no key was required: see `ragkv.access.gate`."""

    tenant_id: str
    key_id: str | None
    scopes: frozenset[KeyScope]

    def may(self, scope: KeyScope) -> bool:
        """Whether one of the scopes is, or includes, this one."""
        wide_enough = KEY_SCOPES[KEY_SCOPES.index(scope) :]
        return not self.scopes.isdisjoint(wide_enough)
