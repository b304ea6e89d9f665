"""Rules for KV: show and change them for a collection, and apply them to existing documents."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from ragkv.errors import Unavailable
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import LEAST, MOST, CompressionMethod, KVRule, KVWhen, KVWrite
from ragkv.service.base.database import Database, Session
from ragkv.service.base.tables import CollectionRow
from ragkv.service.base.tenants import known_collection
from ragkv.service.collections.statements import collection_changed
from ragkv.service.documents.job_statements import KEEP
from ragkv.service.documents.requeue import QUEUED_AT_ONCE, refresh_outdated_kv, requeue_stuck
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.rule_statements import documents_with_hot_chunks
from ragkv.service.kv_admin.usage import rebuild_missing, request_kv
from ragkv.service.parts import Parts
from ragkv.settings import Settings

MAX_USES = 1000
DEFAULT = "default"
Format = Literal["default", "bf16", "int8", "int4"]
When = Literal["default", "upload", "nth_use", "never"]
Write = Literal["default", "through", "back", "nth_use"]
Compress = Literal["default", "none", "streaming", "h2o", "snapkv", "laq"]
Field = Literal["format", "when", "uses", "write", "compress", "keep"]
FORMAT = "Format of stored KV: `bf16` as the model computes it, `int8` and `int4` quantised."
WHEN = "When the KV of a chunk is computed: after the `upload` of its document, at the `nth_use`, or `never`."
USES = "Number of answers that use a chunk before its KV is computed or uploaded, for `nth_use`."
WRITE = "When KV is uploaded to the object store: at once (`through`), after ten minutes (`back`), at the `nth_use`."
COMPRESS = (
    "Method that chooses the tokens of each chunk whose KV is kept: `streaming` (StreamingLLM), `h2o`, `snapkv`, `laq` "
    "(Lookahead Q-Cache); `none`: all tokens. Tokens without KV do not enter stitched prompts."
)


class KVRulePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a collection's rule for KV. Omitted fields are unchanged; `default`, 0 uses, or to keep 0: as
    the service's settings say."""

    format: Annotated[Format | None, FORMAT] = None
    when: Annotated[When | None, WHEN] = None
    uses: Annotated[int, USES, Meta(ge=0, le=MAX_USES)] | None = None
    write: Annotated[Write | None, WRITE] = None
    compress: Annotated[Compress | None, COMPRESS] = None
    keep: Annotated[float, "Share of each chunk's tokens that `compress` keeps.", Meta(ge=0, le=MOST)] | None = None


class KVRuleView(msgspec.Struct, frozen=True, kw_only=True):
    """A collection's rule for KV. `own`: what the collection has in place of the service's settings."""

    format: Annotated[KVFormat, FORMAT]
    when: Annotated[KVWhen, WHEN]
    uses: Annotated[int, USES]
    write: Annotated[KVWrite, WRITE]
    compress: Annotated[CompressionMethod, COMPRESS]
    keep: Annotated[float, "Share of each chunk's tokens that `compress` keeps."]
    own: Annotated[list[Field], "Fields that the collection has in place of the service's settings."]


def rule_view(owner: KVOwner, database: Database, settings: Settings) -> KVRuleView:
    """The KV rule of a collection. Raises NotFound."""
    with database.reading() as session:
        return _view(_row(session, owner), settings)


def change_rule(
    owner: KVOwner, patch: KVRulePatch, parts: Parts, when_changed: Callable[[], None] = lambda: None
) -> KVRuleView:
    """Change a collection's rule for KV. In the background KV is then converted to another format, computed of other
    tokens, and computed where the rule did not want it before. KV that the new rule does not want stays until it is
    evicted. Raises NotFound.

    `when_changed` is called after the commit. Then documents are marked: one that a worker finishes meanwhile is
    finished by the old rule, and marked then. If that fails, the same change again marks them.
    """
    with parts.database.writing() as session:
        row = _row(session, owner, lock=True)
        old_rule = _rule(row, parts.settings)
        for name in ("format", "when", "write", "compress"):
            if (value := getattr(patch, name)) is not None:
                setattr(row, f"kv_{name}", None if value == DEFAULT else value)
        if patch.uses is not None:
            row.kv_uses = patch.uses or None
        if patch.keep is not None:
            row.kv_keep = max(round(patch.keep, 2), LEAST) if patch.keep else None
        after, view = _rule(row, parts.settings), _view(row, parts.settings)
        session.flush()
        is_other_kv = (after.format, after.compression) != (old_rule.format, old_rule.compression)
        if is_other_kv:
            session.execute(collection_changed(row.id))  # kept answers were given from the other KV
    when_changed()
    if after.when is KVWhen.UPLOAD is not old_rule.when:
        # Not when the rule is named again: KV that was evicted to make room would be computed whenever it is.
        try:
            rebuild_missing(owner, parts.database, parts.kv_store, parts.queue)
        except Unavailable as error:
            raise Unavailable(
                f"the rule was changed, but not all documents that lack KV were queued: send POST "
                f"/v1/collections/{owner.collection_id}/kv/rebuild ({error})"
            ) from error
    if is_other_kv or any(named is not None for named in (patch.format, patch.compress, patch.keep)):
        refresh_outdated_kv(parts.database, parts.settings, parts.index_fingerprint, parts.kv_fingerprint)
        with suppress(Unavailable):  # the next sweep queues them, and those beyond
            requeue_stuck(parts.database, parts.queue, QUEUED_AT_ONCE)
    return view


def keep_hot(database: Database, settings: Settings) -> int:
    """Queue documents whose chunks have reached the use threshold. Returns how many."""
    with database.writing() as session:
        hot = session.execute(documents_with_hot_chunks(settings.kv_rule)).all()
        return sum(request_kv(session, *place, KEEP) for place in hot)


def _row(session: Session, owner: KVOwner, *, lock: bool = False) -> CollectionRow:
    assert owner.collection_id is not None, "rules are of collections"
    return known_collection(session, owner.collection_id, lock=lock)


def _own(row: CollectionRow) -> dict[Field, Any]:
    return {name: getattr(row, f"kv_{name}") for name in get_args(Field)}


def _rule(row: CollectionRow, settings: Settings) -> KVRule:
    return settings.kv_rule.in_place_of(*_own(row).values())


def _view(row: CollectionRow, settings: Settings) -> KVRuleView:
    own = [name for name, value in _own(row).items() if value]
    return KVRuleView(**asdict(_rule(row, settings)), own=own)
