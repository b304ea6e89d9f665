"""What retrieval reads from the database: which documents are indexed, their points, and chunks by id."""

import threading
from collections.abc import Iterator, Sequence

from ragkv.chunk import Chunk
from ragkv.db.chunks import chunks_by_id, points_of, titles_of, to_chunk, to_point
from ragkv.db.collections import generation_of
from ragkv.db.database import Database
from ragkv.db.documents import versions_of_indexed
from ragkv.retrieve.vectors import Point

BATCH = 500
"""Ids in one statement."""
REMEMBERED_COLLECTIONS = 64


class DatabaseSource:
    """Points and chunks as the database holds them at the moment of the call.

    `recipe` names the models in use: what was made with others is not there until it is ingested again.
    """

    def __init__(self, database: Database, recipe: str) -> None:
        self._database = database
        self._recipe = recipe
        self._lock = threading.Lock()
        self._remembered: dict[tuple[str, str], _Versions] = {}

    def indexed_documents(self, tenant_id: str, collection_id: str) -> dict[str, int]:
        """Version by document id. A version changes whenever the document's chunks are written again.

        The same object for as long as the collection's generation stays, which is one row to read. Not to be changed.
        """
        with self._database.reading() as session:
            generation = session.scalar(generation_of(tenant_id, collection_id))
        if generation is None:
            return {}
        versions = self._versions_of((tenant_id, collection_id))
        with versions.lock:  # of several that find a new generation, one reads
            if versions.generation != generation:
                versions.by_document = self._read_versions(tenant_id, collection_id)
                versions.generation = generation  # of before: what is committed meanwhile has a later one
            return versions.by_document

    def points(self, document_ids: Sequence[str]) -> list[Point]:
        """The points of these documents."""
        with self._database.reading() as session:
            return [to_point(row) for ids in batches(document_ids) for row in session.scalars(points_of(ids))]

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> list[Chunk]:
        """The tenant's chunks of these ids, in the order asked for; what is gone is left out."""
        with self._database.reading() as session:
            statements = [chunks_by_id(tenant_id, ids, self._recipe) for ids in batches(chunk_ids)]
            found = {row.id: to_chunk(row) for statement in statements for row in session.scalars(statement)}
        return [found[chunk_id] for chunk_id in chunk_ids if chunk_id in found]

    def titles(self, tenant_id: str, collection_id: str) -> dict[str, list[str]]:
        """Every title of the collection's chunks with the ids of the chunks under it, in document order."""
        titles: dict[str, list[str]] = {}
        with self._database.reading() as session:
            for title, chunk_id in session.execute(titles_of(tenant_id, collection_id, self._recipe)):
                titles.setdefault(title, []).append(chunk_id)
        return titles

    def _read_versions(self, tenant_id: str, collection_id: str) -> dict[str, int]:
        with self._database.reading() as session:
            rows = session.execute(versions_of_indexed(tenant_id, collection_id, self._recipe))
            return {document_id: version for document_id, version in rows}  # noqa: C416 - dict() mistakes rows for a mapping

    def _versions_of(self, place: tuple[str, str]) -> "_Versions":
        """Those of the collections that were asked for last are kept."""
        with self._lock:
            versions = self._remembered.pop(place, None) or _Versions()
            self._remembered[place] = versions
            while len(self._remembered) > REMEMBERED_COLLECTIONS:
                del self._remembered[next(iter(self._remembered))]
        return versions


class _Versions:
    """The versions of one collection's documents, as of a generation; None before they are read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.generation: int | None = None
        self.by_document: dict[str, int] = {}


def batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids, so many at a time as one statement may have."""
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
