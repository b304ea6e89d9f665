"""Statements about the tiers of KV: only on a disk, or in the object store too."""

from collections.abc import Sequence

from sqlalchemy import Select, Update, select, update

from ragkv.service.base.lists import one_of
from ragkv.service.base.tables import KVEntryRow

DISK, REMOTE = "disk", "remote"


def remote_entries(keys: Sequence[str]) -> Select[str, int]:
    """(key, bytes) of those among these keys that the object store has."""
    return select(KVEntryRow.key, KVEntryRow.num_bytes).where(one_of(KVEntryRow.key, keys), KVEntryRow.tier == REMOTE)


def tiers_of(keys: Sequence[str]) -> Select[str, str]:
    """(key, tier) of those among these keys that have an entry."""
    return select(KVEntryRow.key, KVEntryRow.tier).where(one_of(KVEntryRow.key, keys))


def keys_of_tier(tier: str) -> Select[str]:
    """Keys of all tenants."""
    return select(KVEntryRow.key).where(KVEntryRow.tier == tier)


def tenants_with_remote() -> Select[str]:
    """Tenants some of whose KV the object store has."""
    return select(KVEntryRow.tenant_id).where(KVEntryRow.tier == REMOTE).distinct()


def on_disk_alone(after: str, limit: int) -> Select[str, str, int]:
    """(key, tenant, bytes) of KV that was not uploaded: a page of it by key."""
    waiting = (KVEntryRow.tier == DISK, KVEntryRow.key > after)
    statement = select(KVEntryRow.key, KVEntryRow.tenant_id, KVEntryRow.num_bytes).where(*waiting)
    return statement.order_by(KVEntryRow.key).limit(limit)


def moved(keys: Sequence[str], tier: str) -> Update:
    """These keys are of another tier."""
    return update(KVEntryRow).where(one_of(KVEntryRow.key, keys)).values(tier=tier)
