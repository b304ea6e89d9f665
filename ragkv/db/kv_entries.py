"""Statements about KV files: what is kept, and for whom."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Delete, Insert, Select, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from ragkv.db.tables import ChunkRow, KVEntryRow


def keep_entries(dialect: str, rows: list[dict[str, Any]]) -> Insert:
    """Insert rows of `kv_entries`; those that are there already stay as they are."""
    if dialect == "postgresql":
        return postgresql.insert(KVEntryRow).values(rows).on_conflict_do_nothing()
    return sqlite.insert(KVEntryRow).values(rows).on_conflict_do_nothing()


def unshared_keys(document_id: str) -> Select[str | None]:
    """KV keys that this document's chunks use and no other document's do."""
    elsewhere = select(ChunkRow.kv_key).where(ChunkRow.document_id != document_id, ChunkRow.kv_key.is_not(None))
    return (
        select(ChunkRow.kv_key)
        .where(ChunkRow.document_id == document_id, ChunkRow.kv_key.is_not(None), ChunkRow.kv_key.not_in(elsewhere))
        .distinct()
    )


def keys_in_use(keys: Sequence[str]) -> Select[str | None]:
    """Those of `keys` that some chunk uses."""
    return select(ChunkRow.kv_key).where(ChunkRow.kv_key.in_(keys)).distinct()


def forget_entries(keys: Sequence[str]) -> Delete:
    return delete(KVEntryRow).where(KVEntryRow.key.in_(keys))


def kv_totals() -> Select[int, int]:
    """(files, bytes)."""
    return select(func.count(), func.coalesce(func.sum(KVEntryRow.num_bytes), 0)).select_from(KVEntryRow)


def kv_by_tier() -> Select[str, int, int]:
    """(tier, files, bytes) of all tenants."""
    sums = (func.count(), func.coalesce(func.sum(KVEntryRow.num_bytes), 0))
    return select(KVEntryRow.tier, *sums).group_by(KVEntryRow.tier)
