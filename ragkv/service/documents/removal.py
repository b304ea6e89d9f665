"""Removal of documents and of everything made from them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ragkv.service.base.database import Database, advisory_lock
from ragkv.service.base.deletion_statements import note_deletions
from ragkv.service.base.embedded_redis import AppendLog
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.tables import DocumentRow
from ragkv.service.collections.statements import collection_lost_documents
from ragkv.service.documents.originals import discard_all_unnamed, uploads_lock
from ragkv.service.documents.statements import forget_documents, hashes_to_remove
from ragkv.service.kv_admin.entry_statements import forget_entries, keys_in_use, keys_of_documents
from ragkv.service.webhooks.statements import forget_deliveries_about

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from ragkv.kv.store import KVStore
    from ragkv.retrieve.qdrant import QdrantIndex
    from ragkv.retrieve.retriever import Retriever
    from ragkv.service.answer_cache.recent import RecentAnswers
    from ragkv.service.answer_cache.ring import AnswerRing


class Removal:
    """The stores in which documents leave something, which their removal clears."""

    def __init__(
        self,
        database: Database,
        files: FileStore,
        kv_store: "KVStore",
        answer_ring: "AnswerRing",
        recent_answers: "RecentAnswers",
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


def remove_documents(
    tenant_id: str,
    collection_id: str,
    document_ids: Sequence[str],
    removal: Removal,
    still: "ColumnElement[bool] | None" = None,
    when_changed: Callable[[], None] = lambda: None,
) -> list[str]:
    """Remove a collection's documents: their points on an index server, their rows and the messages of webhooks about
    them in one transaction, then files and KV that nothing else uses.

    still: a condition on documents, asked under the lock that uploads hold: one that was chosen before, and was
    uploaded since, stays. when_changed: called once rows are gone, before files and KV go. Returns the ids of the
    removed ones. Kept answers are to go after. A crash in between leaves files, which the sweep finds. Raises
    Unavailable, before anything is gone from the database, when the index is away.
    """
    with removal.database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))
        rows = session.execute(hashes_to_remove(tenant_id, collection_id, document_ids, still)).all()
        ids = [document_id for document_id, *_ in rows]
        if ids and (index := removal.index()) is not None:
            index.delete_from_collection(tenant_id, collection_id, ids)
        keys = session.scalars(keys_of_documents(ids)).all()
        session.connection().execute(forget_documents(ids))
        note_deletions(session, DocumentRow, ids)
        session.connection().execute(forget_deliveries_about(ids))
        used = set(session.scalars(keys_in_use(keys)))
        unused = [key for key in keys if key not in used]
        session.connection().execute(forget_entries(unused))
        session.connection().execute(collection_lost_documents(collection_id))
    if ids:
        when_changed()
    hashes = [sha256 for _, *both in rows for sha256 in both if sha256 is not None]
    discard_all_unnamed(tenant_id, hashes, removal.database, removal.files)
    removal.kv_store.delete(unused)
    return ids
