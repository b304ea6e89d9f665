"""The caller of a request: an API key, or a person who signed in."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import msgspec

KeyScope = Literal["metrics", "read", "write", "admin"]
"""metrics: /metrics, nothing else. read: ask, search, look, rate answers. write: also upload, change and delete
documents, create and rename collections. admin: also keys, data sources, KV rules, and deletion of collections."""

KEY_SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
"""Each includes those before it."""


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who signed in. `subject`: the provider's id of them, which never changes."""

    subject: str
    name: str
    email: str | None

    def __str__(self) -> str:
        called = self.email or self.name
        return called if called == self.subject else f"{called} ({self.subject})"


class TenantName(NamedTuple):
    """A tenant by id and name."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of everything a request may see, by an API key or as a person who signed in. Without either no key was
    required: see `ragkv.service.access.gate`. `tenants`: those that a person may work in, this one among them."""

    tenant_id: str
    key_id: str | None
    scopes: frozenset[KeyScope]
    person: Person | None = None
    tenants: tuple[TenantName, ...] = ()

    @property
    def identity(self) -> str | None:
        """Identity by which requests are counted: the key's id or the person's. None if no key was required."""
        return self.key_id if self.person is None else f"person:{self.person.subject}"

    def may(self, scope: KeyScope) -> bool:
        """Whether one of the scopes is, or includes, this one."""
        wide_enough = KEY_SCOPES[KEY_SCOPES.index(scope) :]
        return not self.scopes.isdisjoint(wide_enough)
