"""Compute the missing KV of a searchable document; each batch is committed as soon as it is stored."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingest.parts import IngestParts
from ingest.turn import Reporter, Turn
from ragkv.chunk import Chunk
from ragkv.errors import Conflict, Unavailable
from ragkv.files_io import check_room
from ragkv.kv.format import share_of
from ragkv.kv.key import KeyMaker
from ragkv.kv.rule import KVRule
from ragkv.prefill.precompute import Hooks, KVEntry, precompute
from ragkv.service.base.kv_disk import sizes_of_remote
from ragkv.service.base.tables import DocumentRow
from ragkv.service.documents.lease import KeptKV, Lease
from ragkv.service.kv_admin.eviction import NewKV, evict_entries, make_room_for
from ragkv.service.kv_admin.upload import has_room_on_disk

log = logging.getLogger(__name__)

OVERHEAD = 1.2
"""A KV file takes a little more than its keys and values."""
RUNS = 3
"""Runs over the chunks, at most, while files go that the document counted on."""


def keep_kv(lease: Lease, document: DocumentRow, ingest: IngestParts, reporter: Reporter, turn: Turn) -> None:
    """Take a document from SEARCHABLE to READY, or as far as the rule for its KV wants and the tenant's room reaches.

    Raises TurnOver between batches, Unavailable while there is no engine, OutOfSpace while the disk is nearly full, and
    Conflict once the lease is lost.
    """
    default = ingest.parts.settings.kv_rule
    try:
        while not _keep_kv_by(lease.kv_rule(default), lease, document, ingest, reporter, turn):
            log.info("document %s: the rule for its KV was changed meanwhile", document.id)
    except Unavailable:  # the engine, perhaps, which others do not need yet
        turn.give_way()
        raise


def keys_by(rule: KVRule, keys: KeyMaker) -> KeyMaker:
    """A tenant's keys of KV, as a rule has it made."""
    return replace(keys, kv_format=rule.format, compression=rule.compression)


def _keep_kv_by(
    rule: KVRule, lease: Lease, document: DocumentRow, ingest: IngestParts, reporter: Reporter, turn: Turn
) -> bool:
    """`keep_kv` by a rule. False if the document's rule is another by now."""
    parts = ingest.parts
    keys = keys_by(rule, parts.keys_of(document.tenant_id))
    chunks = lease.chunks_to_keep(rule)
    named = _Named(chunks, keys)

    def keep(entries: Sequence[KVEntry], seconds: float | None) -> None:
        lease.keep(named.kept(entries))
        ingest.counters.tokens(**{"reused" if seconds is None else "computed": _tokens(entries)})
        ingest.kept()
        turn.stored_kv()
        if seconds is not None:
            ingest.batch_size.adapt(_tokens(entries) + len(entries) * len(keys.prefix_ids), seconds)

    def has_room(tokens: int) -> bool:
        share = share_of(keys.kv_format, parts.layout.head_dim, parts.settings.chunk_tokens)
        share *= rule.keep if rule.compression else 1
        check_room(parts.settings.kv_dir, parts.settings.min_free_bytes)
        num_bytes = int(tokens * parts.layout.bytes_per_token * OVERHEAD * share)
        if parts.kv_remote is not None and not has_room_on_disk(num_bytes, parts):
            return False
        return make_room_for(
            NewKV(document.tenant_id, document.id, num_bytes),
            parts.database,
            parts.settings,
            parts.kv_store,
            parts.worker_counters,
        )

    def elsewhere(kv_keys: Sequence[str]) -> Mapping[str, int]:
        return {} if parts.kv_remote is None else sizes_of_remote(parts.database, kv_keys)

    try:
        with ingest.stage("prefill"):
            for _ in range(RUNS):
                done = precompute(
                    chunks, keys, lambda: ingest.prefiller, parts.kv_store, ingest.batch_size.tokens,
                    Hooks(reporter.stage("prefill"), keep, has_room, elsewhere),
                )  # fmt: skip
                counted = lease.kv_keys()
                # A file that no chunk of this document names yet goes with the other document that it was of. One that
                # a chunk names was evicted, and stays so.
                if done.vanished <= counted:
                    break
        is_whole = done.is_whole and len(chunks) == lease.document().num_chunks
        is_done = lease.finish(
            named.kept(done.entries), parts.kv_fingerprint(rule), rule, parts.settings.kv_rule, is_whole=is_whole
        )
    except Conflict:
        parts.kv_store.delete(lease.unused([keys.chunk(chunk.token_ids) for chunk in chunks], document.sha256))
        raise
    ingest.counters.tokens(reused=_tokens([entry for entry in done.entries if entry.key not in counted]))
    # Evicted since the last look at the files, as while this worker waited for the database: it stays so.
    lost = {entry.key: entry.bytes for entry in done.entries if not parts.kv_store.bytes_of(entry.key)}
    copied = elsewhere(list(lost))
    evict_entries([item for item in lost.items() if item[0] not in copied], parts.database, parts.kv_store)
    return is_done


def _tokens(entries: Sequence[KVEntry]) -> int:
    return sum(entry.tokens for entry in entries)


class _Named:
    """Chunks by the KV key of their text; several chunks may share one key."""

    def __init__(self, chunks: Sequence[Chunk], keys: KeyMaker) -> None:
        self._chunks: dict[str, list[str]] = {}
        for chunk in chunks:
            self._chunks.setdefault(keys.chunk(chunk.token_ids), []).append(chunk.id)

    def kept(self, entries: Sequence[KVEntry]) -> list[KeptKV]:
        return [
            KeptKV(chunk_id, entry.key, entry.tokens, entry.bytes)
            for entry in entries
            for chunk_id in self._chunks[entry.key]
        ]
