"""Removal of documents and of everything made from them: points, files, KV, kept answers, and vectors in this process's
memory."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from ragkv.chunk import Chunk
from ragkv.errors import Unavailable
from ragkv.ids import batched
from ragkv.service.answer_cache.recent import RecentAnswers, checksum
from ragkv.service.answer_cache.ring import GONE, AnswerRing
from ragkv.service.audit.statements import note_deletions
from ragkv.service.base.database import Condition, Database, Session, advisory_lock
from ragkv.service.base.embedded_redis import AppendLog
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.tables import DocumentRow
from ragkv.service.collections.statements import collection_lost_documents, generations_of
from ragkv.service.documents.statements import (
    among,
    documents_where,
    forget_documents,
    locked,
    named_files,
)
from ragkv.service.kv_admin.entry_statements import (
    forget_entries,
    keys_in_use,
    keys_of_documents,
    keys_with_entries,
    locked_entries,
)
from ragkv.service.webhooks.statements import forget_deliveries_about

if TYPE_CHECKING:
    from ragkv.kv.store import KVStore
    from ragkv.retrieve.qdrant import QdrantIndex
    from ragkv.retrieve.retriever import Retriever

log = logging.getLogger(__name__)

CollectionIds = tuple[str, str]
"""A tenant and its collection."""


class Removal:
    """The stores in which documents leave something, which their removal clears."""

    def __init__(
        self,
        database: Database,
        files: FileStore,
        kv_store: "KVStore",
        answer_ring: AnswerRing,
        recent_answers: RecentAnswers,
        append_log: AppendLog | None,
        index: "Callable[[], QdrantIndex | None]",
        retriever: "Callable[[], Retriever | None]",
    ) -> None:
        """index: the search index on a server, None without one; the server may be away. retriever: that of this
        process, None as long as it has not searched."""
        self.database = database
        self.files = files
        self.kv_store = kv_store
        self.answer_ring = answer_ring
        self.recent_answers = recent_answers
        self.append_log = append_log
        self.index = index
        self.retriever = retriever
        self.when_changed: Callable[[], None] = lambda: None

    def noting(self, when_changed: Callable[[], None]) -> "Removal":
        """The same, but `when_changed` is called after each commit that removes or replaces something, before files and
        KV go."""
        removal = copy(self)
        removal.when_changed = when_changed
        return removal


def uploads_lock(tenant_id: str) -> str:
    """The name of the lock under which a tenant's files come and go, so that sums over them stay true."""
    return f"uploads of {tenant_id}"


def discard_unnamed(tenant_id: str, hashes: Sequence[str], database: Database, files: FileStore) -> int:
    """Remove those of a tenant's stored files that no row names. Returns how many are gone.

    Called after the commit that took the last name away: a crash in between leaves a file that the sweep finds, never a
    row without its file. The lock keeps out an upload of the same bytes.
    """
    with database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))
        named = {sha256 for owner, sha256 in session.execute(named_files(hashes)) if owner == tenant_id}
        unnamed = [sha256 for sha256 in hashes if sha256 not in named]
        for sha256 in unnamed:
            files.delete(tenant_id, sha256)
        return len(unnamed)


def remove_documents(
    tenant_id: str,
    collection_id: str,
    document_ids: Sequence[str],
    removal: Removal,
    still: Condition | None = None,
) -> list[str]:
    """Remove a collection's documents: their points on an index server, their rows and the messages of webhooks about
    them in one transaction, then files and KV that nothing else uses.

    still: a condition on documents, asked under the lock that uploads hold: one that was chosen before, and was
    uploaded since, stays. Returns the ids of the removed ones. Kept answers are to go after. A crash in between leaves
    files, which the sweep finds. Raises Unavailable, before anything is gone from the database, when the index is away.
    """
    with removal.database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))
        documents = among(documents_where(tenant_id, collection_id), document_ids)
        present = locked(documents if still is None else documents.where(still))
        columns = (DocumentRow.id, DocumentRow.sha256, DocumentRow.earlier_sha256)
        rows = session.execute(present.with_only_columns(*columns)).all()
        ids = [document_id for document_id, *_ in rows]
        if ids and (index := removal.index()) is not None:
            index.delete_from_collection(tenant_id, collection_id, ids)
        keys = session.scalars(keys_of_documents(ids)).all()
        session.execute(locked_entries(keys_with_entries(keys)))  # before chunks, as everywhere
        session.connection().execute(forget_documents(ids))
        note_deletions(session, DocumentRow, ids)
        session.connection().execute(forget_deliveries_about(ids))
        unused = _forget_unused(session, keys)
        session.connection().execute(collection_lost_documents(collection_id))
    if ids:
        removal.when_changed()
    hashes = [sha256 for _, *both in rows for sha256 in both if sha256 is not None]
    discard_unnamed(tenant_id, hashes, removal.database, removal.files)
    delete_forgotten(unused, removal.database, removal.kv_store)
    return ids


def forget_unused(keys: Sequence[str], database: Database) -> list[str]:
    """Forget the entries of those keys that no chunk uses any longer. Returns them: their files can go
    (`delete_forgotten`)."""
    unused: list[str] = []
    with database.writing() as session:
        for batch in batched(sorted(keys)):
            session.execute(locked_entries(keys_with_entries(batch)))
            unused += _forget_unused(session, batch)
    return unused


def _forget_unused(session: Session, keys: Sequence[str]) -> list[str]:
    """`forget_unused`, of entries that the session has locked."""
    used = set(session.scalars(keys_in_use(keys)))  # also by a document that was finished just before
    unused = [key for key in keys if key not in used]
    session.connection().execute(forget_entries(unused))
    return unused


def delete_forgotten(keys: Sequence[str], database: Database, kv_store: "KVStore") -> None:
    """Remove KV whose entries were forgotten, save what has one again: a document was finished with it meanwhile."""
    named = {key for (key,) in database.rows_among(keys_with_entries, keys)}
    kv_store.delete(key for key in keys if key not in named)


def forget_answers(tenant_id: str, collection_id: str, removal: Removal) -> None:
    """Remove the answers that were kept before the collection's last change, all of them once it is deleted, and
    recent answers.

    Call it after the commit. While Redis is away they stay for the worker's sweep, and none of them is given any more.
    """
    generation = _generations([(tenant_id, collection_id)], removal.database).get(collection_id, GONE)
    try:
        removal.answer_ring.forget(tenant_id, collection_id, generation)
        removal.recent_answers.forget(tenant_id, collection_id)
        if removal.append_log is not None:  # last: a rewrite that begins before this holds what was there
            removal.append_log.note_deletion()
    except Unavailable as error:
        log.warning("kept answers of collection %s are removed by a later sweep: %s", collection_id, error)


def forget_stale_answers(database: Database, answer_ring: AnswerRing) -> int:
    """Remove the answers of every collection that changed since, and of those that are gone. Returns how many rings.

    Raises Unavailable.
    """
    held = answer_ring.collections()
    generations = _generations(held, database)
    forgotten = sum(
        answer_ring.forget(tenant, collection, generations.get(collection, GONE)) for tenant, collection in held
    )
    return forgotten + answer_ring.drop_unlisted()


def forget_stale_recent_answers(recent: RecentAnswers, chunks_of: Callable[[str, list[str]], Sequence[Chunk]]) -> int:
    """Remove recent answers about text that is gone, where a deletion could not. Returns how many. Raises Unavailable.

    chunks_of: a tenant's chunks by their ids, without those that are gone.
    """

    def checksums(tenant_id: str, chunk_ids: list[str]) -> dict[str, int]:
        return {chunk.id: checksum(chunk) for chunk in chunks_of(tenant_id, chunk_ids)}

    return sum(
        recent.keep_only(tenant, collection, partial(checksums, tenant)) for tenant, collection in recent.collections()
    )


class MemoryKeeper:
    """Keeps the index in this process's memory, if there is one, free of what other processes have deleted."""

    def __init__(self, removal: Removal) -> None:
        self._removal = removal
        self._seen: dict[CollectionIds, int] = {}

    def forget_deleted(self) -> None:
        """Drop deleted collections; bring those that changed up to date. Raises Unavailable."""
        retriever = self._removal.retriever()
        if retriever is None:
            return
        held = retriever.held()
        generations = _generations(held, self._removal.database)
        for tenant_id, collection_id in held:
            place, generation = (tenant_id, collection_id), generations.get(collection_id)
            if generation is None:
                retriever.forget(*place)
                self._seen.pop(place, None)
            elif self._seen.get(place) != generation:
                retriever.refresh(*place)
                self._seen[place] = generation


def _generations(held: Sequence[CollectionIds], database: Database) -> Mapping[str, int]:
    """Generation by collection, without deleted collections."""
    return dict(database.rows_among(generations_of, [collection_id for _, collection_id in held]))
