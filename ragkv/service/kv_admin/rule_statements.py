"""Statements about rules for KV: which chunks' KV to keep, and how often chunks without KV were used."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, Update, and_, case, exists, func, or_, select, true, update

from ragkv.kv.rule import KVRule, KVWhen, KVWrite
from ragkv.service.base.lists import one_of
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, CollectionRow, DocumentRow, KVEntryRow
from ragkv.service.documents.chunk_statements import USED_WITHOUT_KV
from ragkv.service.documents.statements import FRESH, unfinished
from ragkv.service.kv_admin.entry_statements import HAS_KV, warmer

BACK_AFTER = timedelta(minutes=10)
"""With `KVWrite.BACK`: what is replaced or removed sooner is never uploaded."""
_BEFORE_USES = 0.5
"""Allowance for fading: the count of an entry begins at one and has faded a little when it is looked at."""

Own = tuple[str | None, str | None, int | None, str | None, str | None, float | None]
"""A collection's rule, None where it has the service's: (format, when, uses, write, compress, keep)."""

_RULE = (
    CollectionRow.kv_format,
    CollectionRow.kv_when,
    CollectionRow.kv_uses,
    CollectionRow.kv_write,
    CollectionRow.kv_compress,
    CollectionRow.kv_keep,
)
OwnMaking = tuple[str | None, str | None, float | None]
"""The part of it that KV is made by: (format, compress, keep)."""
_MAKING = (CollectionRow.kv_format, CollectionRow.kv_compress, CollectionRow.kv_keep)


def rule_of(document_id: str) -> Select[*Own]:
    """The rule of the document's collection."""
    of_document = select(*_RULE).join(DocumentRow, DocumentRow.collection_id == CollectionRow.id)
    return of_document.where(DocumentRow.id == document_id)


def rule_of_collection(collection_id: str) -> Select[*Own]:
    return select(*_RULE).where(CollectionRow.id == collection_id)


def makings_in_use() -> Select[*OwnMaking]:
    """The parts of collections' rules that KV is made by, each combination once."""
    return select(*_MAKING).distinct()


def awaiting_kv(chunk_ids: Sequence[str], default: KVRule) -> Select[str]:
    """Chunks among these, by id, whose KV ingestion will compute: their document lacks it, and the rule wants all."""
    wants_all = func.coalesce(CollectionRow.kv_when, default.when) == KVWhen.UPLOAD
    of_waiting = select(ChunkRow.id).join(DocumentRow, DocumentRow.id == ChunkRow.document_id)
    return of_waiting.join(CollectionRow, CollectionRow.id == DocumentRow.collection_id).where(
        ChunkRow.id.in_(chunk_ids), DocumentRow.status == Status.SEARCHABLE, unfinished(), wants_all
    )


def is_to_keep(rule: KVRule) -> ColumnElement[bool]:
    """Whether the rule wants a chunk's KV: also what is there, in the format that is wanted now."""
    if rule.when is KVWhen.NEVER:
        return HAS_KV
    return or_(HAS_KV, ChunkRow.kv_uses >= rule.uses)


def locked_without_kv(chunk_ids: Sequence[str]) -> Select[str]:
    """Chunks among these that have no KV; on PostgreSQL they are locked, in the order in which all transactions lock
    several."""
    return select(ChunkRow.id).where(*_bare(chunk_ids)).order_by(ChunkRow.id).with_for_update()


def used_without_kv(chunk_ids: Sequence[str], moment: datetime, half_life_s: float, times: int) -> Update:
    """Count uses of those of the chunks that have no KV."""
    warm_until = warmer(ChunkRow.kv_warm_until, moment, half_life_s, times)
    changes = {"kv_uses": ChunkRow.kv_uses + times, "kv_warm_until": warm_until}
    return update(ChunkRow).where(*_bare(chunk_ids)).values(**changes)


def tried(document_id: str, uses: int) -> Update:
    """Reset the use count of chunks that reached the threshold: their KV is kept, or there was no room for it."""
    hot = (ChunkRow.document_id == document_id, ChunkRow.kv_uses >= uses)
    return update(ChunkRow).where(*hot).values(kv_uses=0)


def documents_with_hot_chunks(default: KVRule) -> Select[str, str]:
    """(tenant, document) of documents with a chunk that is used often enough for its KV to be kept, and has none."""
    when = func.coalesce(CollectionRow.kv_when, default.when)
    uses = func.coalesce(CollectionRow.kv_uses, default.uses)
    hot = (ChunkRow.kv_uses >= uses, ~HAS_KV)
    return (
        select(DocumentRow.tenant_id, DocumentRow.id)
        .join(ChunkRow, USED_WITHOUT_KV)
        .join(CollectionRow, CollectionRow.id == DocumentRow.collection_id)
        .where(*hot, when == KVWhen.NTH_USE, DocumentRow.kv_evicted, DocumentRow.status == Status.SEARCHABLE)
        .distinct()
    )


def is_to_upload(default: KVRule, moment: datetime, half_life_s: float) -> ColumnElement[bool]:
    """Whether the rule of a collection that uses an entry has it uploaded by now."""
    uses = func.coalesce(CollectionRow.kv_uses, default.uses)
    timestamp = moment.timestamp()
    often = timestamp + half_life_s / math.log(2) * func.ln(uses + _BEFORE_USES)
    is_due = case(
        {
            KVWrite.BACK: KVEntryRow.created_at < moment - BACK_AFTER,
            KVWrite.NTH_USE: KVEntryRow.warm_until >= often,
        },
        value=func.coalesce(CollectionRow.kv_write, default.write),
        else_=true(),
    )
    return (
        exists()
        .where(ChunkRow.kv_key == KVEntryRow.key)
        .where(ChunkRow.document_id == DocumentRow.id, DocumentRow.collection_id == CollectionRow.id)
        .where(is_due)
    )


def precompute_outdated_again(index_fingerprint: str, kv_fingerprint: str, own: OwnMaking) -> Update:
    """Documents whose chunks fit and whose KV does not wait for a worker: those of collections that make KV by `own`.
    Of those whose KV was evicted, or never kept, the ones that have some: KV under another compression never serves."""
    made_so = (column.is_not_distinct_from(value) for column, value in zip(_MAKING, own, strict=True))
    has_some = exists().where(ChunkRow.document_id == DocumentRow.id, ChunkRow.kv_key == KVEntryRow.key)
    in_part = and_(DocumentRow.status == Status.SEARCHABLE, DocumentRow.kv_evicted, has_some)
    outdated = and_(
        or_(DocumentRow.status == Status.READY, in_part),
        DocumentRow.index_fingerprint == index_fingerprint,
        DocumentRow.kv_fingerprint != kv_fingerprint,
        DocumentRow.collection_id.in_(select(CollectionRow.id).where(*made_so)),
    )
    return update(DocumentRow).where(outdated).values(status=Status.SEARCHABLE, **FRESH)


def _bare(chunk_ids: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return one_of(ChunkRow.id, chunk_ids), ~HAS_KV
