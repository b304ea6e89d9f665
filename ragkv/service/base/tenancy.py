"""Tenants, their collections, and owners of KV."""

from dataclasses import dataclass

DEFAULT_TENANT = "default"
DEFAULT_COLLECTION = "default"


@dataclass(frozen=True, slots=True)
class CollectionRef:
    """One tenant's collection. `secret` is the tenant's: it keys the names of all its KV."""

    tenant_id: str
    collection_id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"CollectionRef(tenant_id={self.tenant_id!r}, collection_id={self.collection_id!r})"


@dataclass(frozen=True, slots=True)
class KVOwner:
    """Owner of KV: all of a tenant's, or that of one of its collections or documents."""

    tenant_id: str
    collection_id: str | None = None
    document_id: str | None = None
