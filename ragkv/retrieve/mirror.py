"""An in-memory index kept in sync with the database, for processes that share a database but no Qdrant server."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ragkv.ids import batched
from ragkv.retrieve.index import Index, Point


class DocumentVersions(Protocol):
    """The database's record of what is searchable."""

    def indexed_documents(self, tenant_id: str, collection_id: str) -> Mapping[str, int]:
        """Searchable documents of a collection and a version of each that changes whenever its chunks do.

        Asked before every search: one cheap query. The same object means that nothing changed.
        """
        ...


class PointSource(DocumentVersions, Protocol):
    """Points of searchable documents."""

    def points(self, document_ids: Sequence[str]) -> Iterable[Point]:
        """All points of these documents, in any order."""
        ...


class Mirror:
    """Copies into `index`, on demand, what `source` holds. Safe to share between threads."""

    def __init__(self, index: Index, source: PointSource) -> None:
        self._index = index
        self._source = source
        self._lock = threading.Lock()
        self._scopes: dict[tuple[str, str], _Scope] = {}

    def sync(self, tenant_id: str, collection_id: str) -> Mapping[str, int]:
        """Make the index equal to the source for one collection; the documents it holds now, with their versions.

        When nothing changed this is one call of `indexed_documents`. A failure half-way leaves the documents it did not
        reach to the next sync. Threads that ask at the same time wait for one of them to do the work.
        """
        with self._lock:
            scope = self._scopes.setdefault((tenant_id, collection_id), _Scope())
        with scope.lock:
            documents = self._source.indexed_documents(tenant_id, collection_id)
            if documents is scope.seen or documents == scope.mirrored:
                scope.seen = documents
                return documents
            outdated = [d for d in scope.mirrored if d not in documents]
            self._index.delete_from_collection(tenant_id, collection_id, outdated)
            for document_id in outdated:
                del scope.mirrored[document_id]
            stale = [d for d, version in documents.items() if scope.mirrored.get(d) != version]
            for batch in batched(stale):
                self._index.replace(tenant_id, collection_id, batch, list(self._source.points(batch)))
                scope.mirrored |= {d: documents[d] for d in batch}
            scope.seen = documents
            return documents

    def held(self) -> list[tuple[str, str]]:
        """(tenant, collection) of every collection that was searched."""
        with self._lock:
            return list(self._scopes)

    def drop(self, tenant_id: str, collection_id: str) -> None:
        """Forget a collection that is deleted."""
        with self._lock:
            scope = self._scopes.pop((tenant_id, collection_id), None)
        if scope is not None:
            with scope.lock:  # a sync that had begun comes first
                self._index.delete_collection(tenant_id, collection_id)


class _Scope:
    """Contents of the index for one collection: document id to version,
    and the object of the source that says the same."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mirrored: dict[str, int] = {}
        self.seen: Mapping[str, int] | None = None
