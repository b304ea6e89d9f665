"""The search index of one process: exact searches over arrays, for machines without a Qdrant server."""

import threading
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ragkv.retrieve.fusion import fused
from ragkv.retrieve.index import DEPTH, DocumentIds, Hit, SearchMode
from ragkv.retrieve.postings import Postings
from ragkv.retrieve.vectors import Point, Vectors

Ranked = list[tuple[int, float]]
"""Rows with their scores, best first."""

Shown = NDArray[np.bool_]
"""For each row whether it may be found."""


class MemoryIndex:
    """An `Index` that is gone when its process ends. Searches take time proportional to the collection.

    The first search after a change lays out the collection's arrays anew: a few tenths of a second for ten thousand
    chunks. A collection's dense vectors are held twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], _Held] = {}

    def close(self) -> None:
        with self._lock:
            self._held.clear()

    def ensure(self, dim: int) -> None:
        """Any length of vector will do: nothing is kept from an earlier encoder."""

    def upsert(self, tenant_id: str, collection_id: str, points: Sequence[Point]) -> None:
        with self._lock:
            held = self._held.setdefault((tenant_id, collection_id), _Held())
        held.add(points)

    def delete_document(self, tenant_id: str, document_id: str) -> None:
        with self._lock:
            concerned = [held for scope, held in self._held.items() if scope[0] == tenant_id]
        for held in concerned:
            held.remove(frozenset([document_id]))

    def delete_from_collection(self, tenant_id: str, collection_id: str, document_ids: Sequence[str]) -> None:
        if (held := self._of(tenant_id, collection_id)) is not None:
            held.remove(frozenset(document_ids))

    def delete_collection(self, tenant_id: str, collection_id: str) -> None:
        with self._lock:
            self._held.pop((tenant_id, collection_id), None)

    def search(
        self,
        tenant_id: str,
        collection_id: str,
        vectors: Vectors,
        limit: int,
        mode: SearchMode = "hybrid",
        document_ids: DocumentIds | None = None,
    ) -> list[Hit]:
        held = self._of(tenant_id, collection_id)
        arrays = None if held is None else held.arrays()
        return [] if arrays is None else arrays.search(vectors, limit, mode, document_ids)

    def dense_of(self, tenant_id: str, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        held = self._of(tenant_id, collection_id)
        points = {} if held is None else held.points
        return {i: points[i].vectors.dense for i in chunk_ids if i in points}

    def _of(self, tenant_id: str, collection_id: str) -> "_Held | None":
        with self._lock:
            return self._held.get((tenant_id, collection_id))


class _Held:
    """One collection: its points, and their arrays once they are searched. Laying these out keeps no other waiting.

    `points` is replaced, never changed: reading it needs no lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: _Arrays | None = None
        self.points: dict[str, Point] = {}

    def add(self, points: Sequence[Point]) -> None:
        with self._lock:
            self._replace(self.points | {point.chunk_id: point for point in points})

    def remove(self, document_ids: DocumentIds) -> None:
        with self._lock:
            kept = {i: point for i, point in self.points.items() if point.document_id not in document_ids}
            if len(kept) < len(self.points):
                self._replace(kept)

    def arrays(self) -> "_Arrays | None":
        """None for a collection without chunks."""
        with self._lock:
            if self._arrays is None and self.points:
                self._arrays = _Arrays(self.points.values())
            return self._arrays

    def _replace(self, points: dict[str, Point]) -> None:
        self.points, self._arrays = points, None


class _Arrays:
    """The chunks of one collection at one moment, a row each."""

    def __init__(self, points: Iterable[Point]) -> None:
        held = list(points)
        self._ids = [(point.chunk_id, point.document_id) for point in held]
        self._dense = np.stack([point.vectors.dense for point in held])
        self._postings = Postings([(point.vectors.indices, point.vectors.values) for point in held])

    def search(self, vectors: Vectors, limit: int, mode: SearchMode, within: DocumentIds | None) -> list[Hit]:
        shown = None if within is None else np.array([document_id in within for _, document_id in self._ids])
        if mode == "sparse":
            ranked = self._by_terms(vectors, limit, shown)
        elif mode == "dense" or not vectors.indices.size:
            ranked = self._by_dense(vectors, limit, shown)
        else:
            depth = max(DEPTH, limit)
            searches = self._by_dense(vectors, depth, shown), self._by_terms(vectors, depth, shown)
            ranked = fused([row for row, _ in found] for found in searches)[:limit]
        return [Hit(*self._ids[row], score) for row, score in ranked]

    def _by_dense(self, vectors: Vectors, limit: int, shown: Shown | None) -> Ranked:
        return _best(_only(shown, self._dense @ vectors.dense), limit)

    def _by_terms(self, vectors: Vectors, limit: int, shown: Shown | None) -> Ranked:
        found = _best(_only(shown, self._postings.scores((vectors.indices, vectors.values))), limit)
        return [(row, score) for row, score in found if score > 0]


def _only(shown: Shown | None, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The scores, those of rows that are not to be shown below every other."""
    return scores if shown is None else np.where(shown, scores, np.float32(-np.inf))


def _best(scores: NDArray[np.float32], limit: int) -> Ranked:
    """The rows with the highest scores; equal ones in order of rows. None with a score of minus infinity."""
    rows = np.arange(len(scores))
    if limit < len(scores):
        rows = np.sort(np.argpartition(-scores, limit - 1)[:limit])
    rows = rows[np.argsort(-scores[rows], kind="stable")]
    return [(row, score) for row, score in zip(rows.tolist(), scores[rows].tolist(), strict=True) if score > -np.inf]
