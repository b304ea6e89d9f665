"""Rules for KV: shown and changed for a collection, and carried out for the documents that are there already."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ragkv.catalog.documents import refresh_outdated_kv, requeue_stuck
from ragkv.db.collections import collection_changed
from ragkv.db.documents import precompute_again
from ragkv.db.jobs import KEEP
from ragkv.db.kv_rules import documents_with_hot_chunks
from ragkv.db.tables import CollectionRow, JobRow
from ragkv.errors import NotFound, Unavailable
from ragkv.kv_format import KVFormat
from ragkv.kv_rule import KVWhen, KVWrite
from ragkv.parts import Parts
from ragkv.tenancy import KVOwner
from ragkv.upkeep.admin import rebuild_evicted

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_USES = 1000
DEFAULT = "default"
Format = Literal["default", "bf16", "int8", "int4"]
When = Literal["default", "upload", "nth_use", "never"]
Write = Literal["default", "through", "back", "nth_use"]
Field = Literal["format", "when", "uses", "write"]


class KVRulePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a collection's rule for KV. Omitted fields are unchanged; `default`, or 0 uses: as the service's
    settings say."""

    format: Format | None = None
    when: When | None = None
    uses: Annotated[int, Meta(ge=0, le=MAX_USES)] | None = None
    write: Write | None = None


class KVRuleView(msgspec.Struct, frozen=True, kw_only=True):
    """A collection's rule for KV. `own`: what the collection has in place of the service's settings."""

    format: KVFormat
    when: KVWhen
    uses: int
    write: KVWrite
    own: list[Field]


def rule_view(owner: KVOwner, parts: Parts) -> KVRuleView:
    """The KV rule of a collection. Raises NotFound."""
    with parts.database.reading() as session:
        return _view(_row(session, owner), parts)


def change_rule(owner: KVOwner, patch: KVRulePatch, parts: Parts) -> KVRuleView:
    """Change a collection's rule for KV. In the background KV is then converted to another format, and computed where
    the rule did not want it before. KV that the new rule does not want stays until it is evicted. Raises NotFound."""
    with parts.database.writing() as session:
        row = _row(session, owner)
        before = _view(row, parts)
        if patch.format is not None:
            row.kv_format = None if patch.format == DEFAULT else patch.format
        if patch.when is not None:
            row.kv_when = None if patch.when == DEFAULT else patch.when
        if patch.uses is not None:
            row.kv_uses = patch.uses or None
        if patch.write is not None:
            row.kv_write = None if patch.write == DEFAULT else patch.write
        after = _view(row, parts)
        session.flush()
        if after.format is not before.format:
            session.execute(collection_changed(row.id))  # kept answers were given from the other format
    if after.when is KVWhen.UPLOAD is not before.when:
        rebuild_evicted(owner, parts)
    if after.format is not before.format:
        refresh_outdated_kv(parts)
        with suppress(Unavailable):  # the next sweep queues them
            requeue_stuck(parts.database, parts.queue)
    return after


def keep_hot(parts: Parts) -> int:
    """Queue documents whose chunks have reached the use threshold. Returns how many."""
    with parts.database.writing() as session:
        hot = session.execute(documents_with_hot_chunks(parts.settings.kv_rule)).all()
        for tenant_id, document_id in hot:
            session.execute(precompute_again(document_id))
            session.add(JobRow(tenant_id=tenant_id, document_id=document_id, kind=KEEP))
    return len(hot)


def _row(session: "Session", owner: KVOwner) -> CollectionRow:
    row = session.get(CollectionRow, owner.collection_id)
    if row is None:
        raise NotFound("the collection was deleted meanwhile")
    return row


def _view(row: CollectionRow, parts: Parts) -> KVRuleView:
    has: dict[Field, Any] = {
        "format": row.kv_format,
        "when": row.kv_when,
        "uses": row.kv_uses,
        "write": row.kv_write,
    }
    rule = parts.settings.kv_rule.in_place_of(*has.values())
    own = [name for name in has if has[name]]
    return KVRuleView(format=rule.format, when=rule.when, uses=rule.uses, write=rule.write, own=own)
