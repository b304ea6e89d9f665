"""The search index of one process, for machines without a Qdrant server: arrays in memory."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ragkv.retrieve.index import DEPTH, DocumentIds, Hit, Point, SearchMode, Vectors, fused
from ragkv.retrieve.segment import Best, Segment, Shown
from ragkv.retrieve.sparse import SparseVector, rarities

EXACT_ROWS = 50_000
"""Collections of no more chunks are searched exactly: all their vectors are read, in 10 ms or so."""
SEGMENT_ROWS = 1 << 17
"""Rows of the largest segment: joining two into one takes a second and 0.2 GB, whatever the collection's size."""
GROWTH = 4
"""Two neighbours become one unless the first has so many times the rows of the second."""

Views = Sequence[tuple[Segment, Shown | None]]
"""Segments, and the rows of each that may be found."""
Ranked = list[tuple[tuple[int, int], float]]
"""Rows, each as (number of the segment, row), with their scores, best first."""


class MemoryIndex:
    """An `Index` that is gone when its process ends.

    Collections of up to `EXACT_ROWS` chunks are searched exactly. In larger ones the signs of the dense vectors choose
    the candidates, of which all numbers are read; docs/BENCHMARKS.md has the recall of that. BM25 is always exact.
    A change takes time proportional to what changes, not to the collection.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._collections: dict[tuple[str, str], _Collection] = {}
        self._dim = 0

    def close(self) -> None:
        with self._lock:
            self._collections.clear()

    def ensure(self, dim: int) -> None:
        """Any length of vector will do: nothing is kept from an earlier encoder."""
        self._dim = dim

    def upsert(self, tenant_id: str, collection_id: str, points: Sequence[Point]) -> None:
        self.replace(tenant_id, collection_id, (), points)

    def replace(self, tenant_id: str, collection_id: str, document_ids: Sequence[str], points: Sequence[Point]) -> None:
        with self._lock:
            collection = self._collections.setdefault((tenant_id, collection_id), _Collection())
        zeros = np.zeros(self._dim, np.float32)  # the row of a point without a dense vector
        collection.replace(
            frozenset(document_ids),
            [p if p.vectors.dense.size else replace(p, vectors=replace(p.vectors, dense=zeros)) for p in points],
        )

    def delete_from_collection(self, tenant_id: str, collection_id: str, document_ids: Sequence[str]) -> None:
        if (collection := self._of(tenant_id, collection_id)) is not None:
            collection.replace(frozenset(document_ids), ())

    def delete_collection(self, tenant_id: str, collection_id: str) -> None:
        with self._lock:
            self._collections.pop((tenant_id, collection_id), None)

    def search(
        self,
        tenant_id: str,
        collection_id: str,
        vectors: Vectors,
        limit: int,
        mode: SearchMode = "hybrid",
        document_ids: DocumentIds | None = None,
    ) -> list[Hit]:
        collection = self._of(tenant_id, collection_id)
        if collection is None:
            return []
        views = [(segment, segment.within(document_ids)) for segment in collection.segments]
        if mode == "sparse":
            ranked = _by_terms(views, vectors, limit)
        elif mode == "dense" or not vectors.indices.size:
            ranked = _by_dense(views, vectors, limit)
        else:
            depth = max(DEPTH, limit)
            searches = _by_dense(views, vectors, depth), _by_terms(views, vectors, depth)
            ranked = fused([place for place, _ in hits] for hits in searches)[:limit]
        return [Hit(*views[number][0].ids(row), score) for (number, row), score in ranked]

    def holders(
        self,
        tenant_id: str,
        collection_id: str,
        terms: SparseVector,
        limit: int,
        document_ids: DocumentIds | None = None,
    ) -> list[list[Hit]]:
        collection = self._of(tenant_id, collection_id)
        views = [(segment, segment.within(document_ids)) for segment in (collection.segments if collection else ())]
        indices, values = terms
        weights = values * _rarities(views, indices)
        by_term: list[list[Hit]] = []
        for term, weight in zip(indices, weights, strict=True):
            holders = [(segment, segment.postings.holders(term, shown)) for segment, shown in views]
            if sum(len(rows) for _, (rows, _) in holders) > limit:
                holders = []
            by_term.append(
                [
                    Hit(*segment.ids(row), score)
                    for segment, (rows, own) in holders
                    for row, score in zip(rows.tolist(), (weight * own).tolist(), strict=True)
                ]
            )
        return by_term

    def dense_of(self, tenant_id: str, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        collection = self._of(tenant_id, collection_id)
        segments = () if collection is None else collection.segments
        vectors = ((i, segment.dense_of(i)) for segment in segments for i in chunk_ids)
        return {chunk_id: dense for chunk_id, dense in vectors if dense is not None}

    def _of(self, tenant_id: str, collection_id: str) -> "_Collection | None":
        with self._lock:
            return self._collections.get((tenant_id, collection_id))


class _Collection:
    """One collection in segments, older ones larger. These are replaced, never changed: reading them needs no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.segments: tuple[Segment, ...] = ()

    def replace(self, document_ids: DocumentIds, points: Sequence[Point]) -> None:
        added = {point.chunk_id: point for point in points}
        with self._lock:
            older = [segment.without(document_ids, added.keys()) for segment in self.segments]
            self.segments = _settled([*older, Segment.of(list(added.values()))] if added else older)


def _settled(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments without those that show nothing, small ones joined, and those that show less than half laid out
    anew."""
    settled: list[Segment] = []
    for segment in segments:
        shown = segment.num_shown
        if not shown:
            continue
        last = segment if 2 * shown >= len(segment.chunk_ids) else Segment.joined([segment])
        while settled:
            older, newer = settled[-1].num_shown, last.num_shown
            if older >= GROWTH * newer or older + newer > SEGMENT_ROWS:
                break
            last = Segment.joined([settled.pop(), last])
        settled.append(last)
    return tuple(settled)


def _by_dense(views: Views, vectors: Vectors, limit: int) -> Ranked:
    by_signs = sum(segment.num_shown for segment, _ in views) > EXACT_ROWS
    nearest = [segment.nearest(vectors.dense, limit, shown, by_signs=by_signs) for segment, shown in views]
    return _best_of(views, nearest, limit)


def _by_terms(views: Views, vectors: Vectors, limit: int) -> Ranked:
    weights = (vectors.values * _rarities(views, vectors.indices)).astype(np.float32)
    matching = [segment.matching(vectors.indices, weights, limit, shown) for segment, shown in views]
    return _best_of(views, matching, limit)


def _rarities(views: Views, terms: NDArray[np.uint32]) -> NDArray[np.float64]:
    occurs_in = np.array(
        [sum(segment.postings.occurrences(term, segment.shown) for segment, _ in views) for term in terms], np.int_
    )
    return rarities(occurs_in, sum(segment.num_shown for segment, _ in views))


def _best_of(views: Views, best_of_segments: Sequence[Best], limit: int) -> Ranked:
    """The best of what was found in each segment; equal ones in order of their chunks' ids, whatever the segments."""
    ranked = [
        (-score, segment.chunk_ids[row], (number, row))
        for number, ((segment, _), best) in enumerate(zip(views, best_of_segments, strict=True))
        for row, score in zip(best.rows.tolist(), best.scores.tolist(), strict=True)
    ]
    return [(place, -score) for score, _, place in sorted(ranked)[:limit]]
