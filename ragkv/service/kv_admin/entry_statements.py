"""Statements about KV entries: sizes, uses, pins, and the order of eviction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Delete,
    Insert,
    Select,
    SQLColumnExpression,
    Update,
    and_,
    case,
    cast,
    delete,
    exists,
    false,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute, aliased

from ragkv.kv.eviction import EVICTION, HALF_LIVES, EvictionName
from ragkv.service.base.lists import one_of
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, CollectionRow, DocumentRow, KVEntryRow, TenantRow


@dataclass(frozen=True, slots=True)
class KVOwner:
    """Owner of KV: all of a tenant's, or that of one of its collections or documents."""

    tenant_id: str
    collection_id: str | None = None
    document_id: str | None = None


def _total(column: SQLColumnExpression[int]) -> ColumnElement[int]:
    """The sum as an integer, also on PostgreSQL, whose sums are decimals; 0 of no rows."""
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


HAS_KV = exists().where(KVEntryRow.key == ChunkRow.kv_key)
"""Whether the KV of a chunk is kept."""
_BYTES = _total(KVEntryRow.num_bytes)
_SUMS = (func.count(), _BYTES, _total(KVEntryRow.num_tokens))


def keep_entries(dialect: str, rows: Sequence[dict[str, Any]]) -> Insert:
    """Insert rows of `kv_entries`, in the order of their keys; those that are there already stay as they are. On
    PostgreSQL these are locked: whoever removes them waits, and sees which chunks use them."""
    if dialect == "postgresql":
        unchanged = {"key": KVEntryRow.key}
        return postgresql.insert(KVEntryRow).values(rows).on_conflict_do_update(index_elements=["key"], set_=unchanged)
    return sqlite.insert(KVEntryRow).values(rows).on_conflict_do_nothing()


def unshared_keys(document_id: str) -> Select[str | None]:
    """KV keys that this document's chunks use and no other document's do."""
    other = aliased(ChunkRow)
    elsewhere = exists().where(other.kv_key == ChunkRow.kv_key, other.document_id != document_id)
    mine = (ChunkRow.document_id == document_id, ChunkRow.kv_key.is_not(None))
    return select(ChunkRow.kv_key).where(*mine, ~elsewhere).distinct()


def keys_of_documents(document_ids: Sequence[str]) -> Select[str]:
    """KV keys that the documents' chunks use, others' too."""
    mine = (one_of(ChunkRow.document_id, document_ids), ChunkRow.kv_key.is_not(None))
    return select(func.coalesce(ChunkRow.kv_key, "")).where(*mine).distinct()


def keys_in_use(keys: Sequence[str]) -> Select[str | None]:
    """Keys among these that some chunk uses."""
    return select(ChunkRow.kv_key).where(one_of(ChunkRow.kv_key, keys)).distinct()


def keys_with_entries(keys: Sequence[str]) -> Select[str]:
    """Keys among these that have an entry."""
    return select(KVEntryRow.key).where(one_of(KVEntryRow.key, keys))


def keys_of_chunks(chunk_ids: Sequence[str]) -> Select[str]:
    """Keys of the entries that these chunks use."""
    return select(KVEntryRow.key).where(_used_by_chunks(chunk_ids))


def locked_entries(keys: Select[str]) -> Select[str]:
    """The same keys; on PostgreSQL their entries are locked, in the order in which all transactions lock several."""
    return keys.order_by(KVEntryRow.key).with_for_update()


def forget_entries(keys: Sequence[str]) -> Delete:
    return delete(KVEntryRow).where(one_of(KVEntryRow.key, keys))


def kv_totals() -> Select[int, int]:
    """(files, bytes)."""
    return select(*_SUMS[:2]).select_from(KVEntryRow)


def kv_by_tier() -> Select[str, int, int]:
    """(tier, files, bytes) of all tenants."""
    return select(KVEntryRow.tier, *_SUMS[:2]).group_by(KVEntryRow.tier)


def kv_of(owner: KVOwner, tier: str | None = None) -> Select[int, int, int, datetime | None]:
    """(files, bytes, tokens, last use) of the KV that an owner's chunks use; of those entries alone that are of a
    tier."""
    statement = select(*_SUMS, func.max(KVEntryRow.last_used_at)).where(_used_by(owner))
    return statement if tier is None else statement.where(KVEntryRow.tier == tier)


def kv_by(owner_id: InstrumentedAttribute[str], ids: Sequence[str]) -> Select[str, int, int, int]:
    """(id, files, bytes, tokens) of those documents (`DocumentRow.id`) or collections (`DocumentRow.collection_id`)
    that have some. What two of them share counts in both."""
    used = (
        select(owner_id.label("owner"), ChunkRow.kv_key)
        .join(DocumentRow, DocumentRow.id == ChunkRow.document_id)
        .where(one_of(owner_id, ids), ChunkRow.kv_key.is_not(None))
        .distinct()
        .subquery()
    )
    return select(used.c.owner, *_SUMS).join(KVEntryRow, KVEntryRow.key == used.c.kv_key).group_by(used.c.owner)


def kv_by_tenant() -> Select[str, int, int, int]:
    """(name, files, bytes, tokens) of all tenants, the largest first."""
    return (
        select(TenantRow.name, func.count(KVEntryRow.key), *_SUMS[1:])
        .outerjoin(KVEntryRow, KVEntryRow.tenant_id == TenantRow.id)
        .group_by(TenantRow.id)
        .order_by(_BYTES.desc(), TenantRow.name)
    )


def entries_of(owner: KVOwner) -> Select[str, int]:
    """(key, bytes) of what an owner's chunks use, by key."""
    return all_entries().where(_used_by(owner)).order_by(KVEntryRow.key)


def recent_entries(owner: KVOwner) -> Select[str, int]:
    """The same, what was used last first."""
    return entries_of(owner).order_by(None).order_by(KVEntryRow.last_used_at.desc(), KVEntryRow.key)


def all_entries() -> Select[str, int]:
    """(key, bytes) of all tenants."""
    return select(KVEntryRow.key, KVEntryRow.num_bytes)


def entries_only_of(owner: KVOwner) -> Select[str, int]:
    """(key, bytes) of what an owner's chunks use and no others do."""
    used_elsewhere = and_(ChunkRow.kv_key == KVEntryRow.key, DocumentRow.tenant_id == owner.tenant_id, ~_belongs(owner))
    elsewhere = exists().where(ChunkRow.document_id == DocumentRow.id, used_elsewhere)
    return entries_of(owner).where(~elsewhere)


def used(chunk_ids: Sequence[str], moment: datetime, half_life_s: float, times: int = 1) -> Update:
    """Count uses of the KV of these chunks."""
    warm_until = warmer(KVEntryRow.warm_until, moment, half_life_s, times)
    return update(KVEntryRow).where(_used_by_chunks(chunk_ids)).values(last_used_at=moment, warm_until=warm_until)


def warmer(
    warm_until: SQLColumnExpression[float], moment: datetime, half_life_s: float, uses: int
) -> ColumnElement[float]:
    """`ragkv.kv.eviction.warmer` as SQL."""
    timestamp = moment.timestamp()
    lowest, highest = HALF_LIVES
    half_lives = _at_most(_at_least((warm_until - timestamp) / half_life_s, lowest), highest)
    count = func.exp(half_lives * math.log(2)) + uses
    return _at_least(timestamp + half_life_s / math.log(2) * func.ln(count), warm_until)


def remember_uses(keys: Sequence[str]) -> Update:
    """Chunks whose KV is about to be evicted keep the count of its uses."""
    entry = select(KVEntryRow.warm_until).where(KVEntryRow.key == ChunkRow.kv_key).scalar_subquery()
    return update(ChunkRow).where(one_of(ChunkRow.kv_key, keys), HAS_KV).values(kv_warm_until=entry)


def recall_uses(keys: Sequence[str]) -> Update:
    """Entries that were made again are as warm as their chunks are."""
    chunk = select(func.max(ChunkRow.kv_warm_until)).where(ChunkRow.kv_key == KVEntryRow.key).scalar_subquery()
    return (
        update(KVEntryRow).where(one_of(KVEntryRow.key, keys), chunk > KVEntryRow.warm_until).values(warm_until=chunk)
    )


def used_in_the_future(moment: datetime, tolerance: timedelta, half_life_s: float) -> Update:
    """Entries that a wrong clock has marked as used later than now, or more often than can be, count as used once,
    now."""
    warmest = moment.timestamp() + HALF_LIVES[1] * half_life_s
    wrong = or_(KVEntryRow.last_used_at > moment + tolerance, KVEntryRow.warm_until > warmest)
    warm_until = _at_most(KVEntryRow.warm_until, moment.timestamp())
    return update(KVEntryRow).where(wrong).values(last_used_at=moment, warm_until=warm_until)


def kv_bytes_by_tenant() -> Select[str, int]:
    """(tenant, bytes) of the tenants that keep some."""
    return select(KVEntryRow.tenant_id, _BYTES).group_by(KVEntryRow.tenant_id)


def tenants_with_kv(tier: str | None = None) -> Select[str]:
    """Ids of the tenants that have KV, or KV of a tier."""
    tenants = select(KVEntryRow.tenant_id).distinct()
    return tenants if tier is None else tenants.where(KVEntryRow.tier == tier)


def document_with_kv(tenant_id: str) -> Select[str]:
    """Id of one of a tenant's documents with KV that no worker is to read: one that is ready, if there is one."""
    has_kv = exists().where(ChunkRow.document_id == DocumentRow.id, ChunkRow.kv_key == KVEntryRow.key)
    is_whole = or_(DocumentRow.status == Status.READY, DocumentRow.kv_evicted)
    mine = (DocumentRow.tenant_id == tenant_id, is_whole, has_kv)
    return select(DocumentRow.id).where(*mine).order_by(DocumentRow.kv_evicted).limit(1)


def pinned_bytes(tenant_id: str) -> Select[int]:
    """Bytes of a tenant's KV that is pinned, each file once."""
    mine = (KVEntryRow.tenant_id == tenant_id, _pinned())
    return select(_BYTES).where(*mine)


def first_to_go(
    policy: EvictionName, half_life_s: float, tenant_id: str, limit: int, spared: str | None = None
) -> Select[str, int]:
    """(key, bytes) of a tenant's KV in the order of a policy of the table, by its `worth` as SQL: neither of what is
    pinned, nor of what a `spared` document uses."""
    tokens, size = _at_least(KVEntryRow.num_tokens, 1), _at_least(KVEntryRow.num_bytes, 1)
    # `ragkv.kv.eviction.cost_worth`, recompute seconds in tokens.
    cost = KVEntryRow.warm_until + half_life_s / math.log(2) * (func.ln(tokens) - func.ln(size))
    worth = {"lru": KVEntryRow.last_used_at, "lfu": KVEntryRow.warm_until, "cost": cost}
    assert worth.keys() == EVICTION.keys()
    may_go = [KVEntryRow.tenant_id == tenant_id, ~_pinned()]
    if spared is not None:
        may_go.append(~exists().where(ChunkRow.kv_key == KVEntryRow.key, ChunkRow.document_id == spared))
    entries = select(KVEntryRow.key, KVEntryRow.num_bytes).where(*may_go)
    return entries.order_by(worth[policy], KVEntryRow.key).limit(limit)


def _at_least(value: Any, bound: Any) -> ColumnElement[Any]:
    return case((value < bound, bound), else_=value)


def _at_most(value: Any, bound: Any) -> ColumnElement[Any]:
    return case((value > bound, bound), else_=value)


def _pinned() -> ColumnElement[bool]:
    """Whether a document that is pinned, or whose collection is, uses the entry."""
    return (
        exists()
        .where(ChunkRow.kv_key == KVEntryRow.key)
        .where(ChunkRow.document_id == DocumentRow.id, DocumentRow.collection_id == CollectionRow.id)
        .where(or_(DocumentRow.kv_pinned, CollectionRow.kv_pinned))
    )


def orphans(cutoff: datetime) -> Select[str]:
    """Keys created before the cutoff that no chunk uses."""
    in_use = exists().where(ChunkRow.kv_key == KVEntryRow.key)
    return select(KVEntryRow.key).where(KVEntryRow.created_at < cutoff, ~in_use)


def lose_readiness(keys: Sequence[str]) -> Update:
    """Documents that are ready and use one of these keys are searchable from now on."""
    ready = (DocumentRow.status == Status.READY, DocumentRow.id.in_(documents_using(keys)))
    return update(DocumentRow).where(*ready).values(status=Status.SEARCHABLE, kv_evicted=True)


def documents_using(keys: Sequence[str]) -> Select[str]:
    """Ids of the documents with chunks that use one of these keys."""
    return select(ChunkRow.document_id).where(one_of(ChunkRow.kv_key, keys)).distinct()


def ready_documents_using(keys: Sequence[str]) -> Select[str]:
    """Ids of the documents that are ready and use one of these keys."""
    return select(DocumentRow.id).where(DocumentRow.status == Status.READY, DocumentRow.id.in_(documents_using(keys)))


def documents_without_kv(owner: KVOwner, lost: Sequence[str] = ()) -> Select[DocumentRow]:
    """An owner's documents that are no longer ready, and those that are although they use one of the lost keys."""
    lacking = DocumentRow.id.in_(ready_documents_using(lost)) if lost else false()
    return select(DocumentRow).where(_belongs(owner), or_(DocumentRow.kv_evicted, lacking))


def chunks_by_kv(owner: KVOwner) -> Select[int, int]:
    """(chunks, those whose KV is kept)."""
    with_kv = func.count(KVEntryRow.key)
    return (
        select(func.count(ChunkRow.id), with_kv)
        .join(DocumentRow, DocumentRow.id == ChunkRow.document_id)
        .outerjoin(KVEntryRow, KVEntryRow.key == ChunkRow.kv_key)
        .where(_belongs(owner))
    )


def _used_by_chunks(chunk_ids: Sequence[str]) -> ColumnElement[bool]:
    return KVEntryRow.key.in_(select(ChunkRow.kv_key).where(one_of(ChunkRow.id, chunk_ids)))


def _used_by(owner: KVOwner) -> ColumnElement[bool]:
    if owner.collection_id is None and owner.document_id is None:
        return KVEntryRow.tenant_id == owner.tenant_id
    users = select(ChunkRow.kv_key).join(DocumentRow, DocumentRow.id == ChunkRow.document_id).where(_belongs(owner))
    return KVEntryRow.key.in_(users)


def _belongs(owner: KVOwner) -> ColumnElement[bool]:
    """Whether a document is one of the owner's."""
    mine = [DocumentRow.tenant_id == owner.tenant_id]
    if owner.collection_id is not None:
        mine.append(DocumentRow.collection_id == owner.collection_id)
    if owner.document_id is not None:
        mine.append(DocumentRow.id == owner.document_id)
    return and_(*mine)
