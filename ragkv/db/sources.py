"""Indexed documents, their points, and chunks by id, as retrieval reads them from the database."""

import threading
from collections.abc import Sequence

from ragkv.batched import batched
from ragkv.chunk import Chunk
from ragkv.db.chunks import chunks_by_id, points_of, ready_chunks, titles_of, titles_of_documents, to_chunk, to_point
from ragkv.db.collections import changes_of
from ragkv.db.database import Database
from ragkv.db.documents import versions_of_indexed, versions_since
from ragkv.recently_used import RecentlyUsed
from ragkv.retrieve.links import TitledChunk
from ragkv.retrieve.vectors import Point

REMEMBERED_COLLECTIONS = 64


class DatabaseSource:
    """Points and chunks as the database holds them at the moment of the call.

    `index_fingerprint` names the models in use: what was made with others is not there until it is ingested again.
    """

    def __init__(self, database: Database, index_fingerprint: str) -> None:
        self._database = database
        self._index_fingerprint = index_fingerprint
        self._remembered = RecentlyUsed[tuple[str, str], _Versions](_Versions, REMEMBERED_COLLECTIONS)

    def indexed_documents(self, tenant_id: str, collection_id: str) -> dict[str, int]:
        """Version by document id. A version changes whenever the document's chunks are written again.

        The same object for as long as none does, which is one row to read. Not to be changed.
        """
        with self._database.reading() as session:
            changes = session.execute(changes_of(tenant_id, collection_id)).one_or_none()
        if changes is None:
            return {}
        versions = self._remembered.of((tenant_id, collection_id))
        with versions.lock:  # of several that find a change, one reads
            if versions.changes != tuple(changes):
                self._catch_up(versions, tenant_id, collection_id)
            return versions.by_document

    def points(self, document_ids: Sequence[str]) -> list[Point]:
        """The points of these documents."""
        with self._database.reading() as session:
            return [to_point(row) for ids in batched(document_ids) for row in session.scalars(points_of(ids))]

    def ready_chunks(self, tenant_id: str, collection_id: str) -> list[Chunk]:
        """A collection's chunks that have KV, in document order."""
        with self._database.reading() as session:
            rows = session.scalars(ready_chunks(tenant_id, collection_id, self._index_fingerprint))
            return [to_chunk(row) for row in rows]

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> list[Chunk]:
        """The tenant's chunks of these ids, in the order asked for; what is gone is left out."""
        with self._database.reading() as session:
            statements = [chunks_by_id(tenant_id, ids, self._index_fingerprint) for ids in batched(chunk_ids)]
            rows = [row for statement in statements for row in session.execute(statement)]
            found = {row.id: to_chunk(row, media_type) for row, media_type in rows}
        return [found[chunk_id] for chunk_id in chunk_ids if chunk_id in found]

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> list[TitledChunk]:
        """The titles of the collection's chunks, or of those of some documents."""
        place = tenant_id, collection_id, self._index_fingerprint
        if document_ids is None:
            statements = [titles_of(*place)]
        else:
            statements = [titles_of_documents(*place, ids) for ids in batched(document_ids)]
        with self._database.reading() as session:
            return [TitledChunk(*row) for statement in statements for row in session.execute(statement)]

    def _catch_up(self, versions: "_Versions", tenant_id: str, collection_id: str) -> None:
        place = tenant_id, collection_id, self._index_fingerprint
        with self._database.reading() as session:
            changes = session.execute(changes_of(tenant_id, collection_id)).one_or_none()
            generation, marked = changes or (0, 0)
            if (since := versions.since(generation, marked)) is None:
                versions.by_document = dict(session.execute(versions_of_indexed(*place)).all())
            elif written := session.execute(versions_since(*place, since)).all():
                updated = dict(versions.by_document)  # a copy: others read the one that was given out
                for document_id, version, is_indexed in written:
                    if is_indexed:
                        updated[document_id] = version
                    else:
                        updated.pop(document_id, None)
                versions.by_document = updated
        versions.changes = generation, marked  # of before: what is committed meanwhile is read again


class _Versions:
    """Versions of one collection's documents after `changes`, (generation, marked changes);
    None before they are read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changes: tuple[int, int] | None = None
        self.by_document: dict[str, int] = {}

    def since(self, generation: int, marked: int) -> int | None:
        """The generation since which all changes are marked;
        None if others are among them: all documents must be read."""
        if self.changes is None:
            return None
        ours, our_marked = self.changes
        return ours if generation > ours and generation - ours == marked - our_marked else None
