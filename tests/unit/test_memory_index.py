"""The index in memory finds what a search through all chunks finds, however the chunks came and went."""

import math
import random
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from ragkv.retrieve.index import DocumentIds, Point, Vectors
from ragkv.retrieve.memory import EXACT_ROWS, SEGMENT_ROWS, MemoryIndex
from ragkv.retrieve.segment import Signs, best

DIM = 8
LIMIT = 20
SCOPE = ("tenant", "collection")
NO_TERMS = np.zeros(0, np.uint32), np.zeros(0, np.float32)


class Chunks:
    """Made-up chunks."""

    def __init__(self, seed: int, dim: int = DIM) -> None:
        self._rng = np.random.default_rng(seed)
        self._dim = dim

    def dense(self, count: int) -> np.ndarray:
        rows = self._rng.standard_normal((count, self._dim), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def vectors(self) -> Vectors:
        (dense,) = self.dense(1)
        terms = np.unique(self._rng.zipf(1.5, size=12) % 50).astype(np.uint32)
        return Vectors(dense, terms, self._rng.random(len(terms), dtype=np.float32) + np.float32(0.1))

    def points(self, numbers: Iterable[int]) -> list[Point]:
        return [Point(f"chunk-{n}", f"document-{n // 3}", "", self.vectors()) for n in numbers]


def found(index: MemoryIndex, query: Vectors, mode: str, among: DocumentIds | None = None) -> list[tuple[str, float]]:
    hits = index.search(*SCOPE, query, LIMIT, mode, among)
    return [(hit.chunk_id, pytest.approx(hit.score, rel=1e-4)) for hit in hits]


def by_dense(points: Sequence[Point], query: Vectors, among: DocumentIds | None) -> list[tuple[str, float]]:
    """All chunks compared one by one."""
    scores = {
        p.chunk_id: float(p.vectors.dense @ query.dense) for p in points if among is None or p.document_id in among
    }
    return sorted(scores.items(), key=lambda found: -found[1])[:LIMIT]


def by_terms(points: Sequence[Point], query: Vectors, among: DocumentIds | None) -> list[tuple[str, float]]:
    """BM25 by its formula, one chunk after the other. Rarity is that in all chunks."""
    weights = {p.chunk_id: dict(zip(p.vectors.indices, p.vectors.values, strict=True)) for p in points}
    scores = {p.chunk_id: 0.0 for p in points if among is None or p.document_id in among}
    for term, asked in zip(query.indices, query.values, strict=True):
        n = sum(term in of for of in weights.values())
        for chunk_id in scores:
            if term in weights[chunk_id]:
                scores[chunk_id] += asked * weights[chunk_id][term] * math.log1p((len(points) - n + 0.5) / (n + 0.5))
    return sorted((pair for pair in scores.items() if pair[1] > 0), key=lambda found: -found[1])[:LIMIT]


@pytest.mark.parametrize("seed", range(4))
def test_after_any_changes_the_same_is_found_as_by_looking_at_each_chunk(seed):
    """Chunks come in portions of any size, come again with other vectors, and go with their documents."""
    chance, chunks, index, held = random.Random(seed), Chunks(seed), MemoryIndex(), dict[str, Point]()
    for _ in range(60):
        first = chance.randrange(400)
        if chance.random() < 0.7:
            points = chunks.points(range(first, first + chance.choice([1, 3, 30, 90])))
            index.upsert(*SCOPE, points)
            held |= {point.chunk_id: point for point in points}
        else:
            gone = frozenset(f"document-{first // 3 + i}" for i in range(chance.choice([1, 20])))
            index.delete_from_collection(*SCOPE, sorted(gone))
            held = {i: point for i, point in held.items() if point.document_id not in gone}

    points = list(held.values())
    query, some = chunks.vectors(), frozenset(p.document_id for p in points[::5])
    for among in (None, some):
        assert found(index, query, "dense", among) == by_dense(points, query, among)
        assert found(index, query, "sparse", among) == by_terms(points, query, among)
    dense = index.dense_of(*SCOPE, [*(f"chunk-{i}" for i in range(500)), "nowhere"])
    assert dense.keys() == held.keys()
    assert all((dense[i] == held[i].vectors.dense).all() for i in held)


def test_a_large_collection_is_searched_by_signs_and_hardly_misses_a_chunk():
    chunks, index, documents = Chunks(5, dim=256), MemoryIndex(), 5200
    rows = np.repeat(chunks.dense(520), 100, axis=0)
    rows += 0.8 * chunks.dense(len(rows))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    points = [Point(f"{i}", f"{i // 10}", "", Vectors(row, *NO_TERMS)) for i, row in enumerate(rows)]
    assert len(points) > EXACT_ROWS
    for first in range(0, len(points), 26_000):
        index.upsert(*SCOPE, points[first : first + 26_000])

    questions = rows[::2000] + 0.3 * chunks.dense(len(rows[::2000]))
    for among in (range(documents), range(0, documents, 2), range(0, documents, 100)):
        shown = np.isin(np.arange(len(rows)) // 10, among)
        scores = np.where(shown, questions @ rows.T, -1)
        asked = None if len(among) == documents else frozenset(map(str, among))
        recall = []
        for question, nearest in zip(questions, np.argsort(-scores, axis=1)[:, :LIMIT], strict=True):
            hits = index.search(*SCOPE, Vectors(question, *NO_TERMS), LIMIT, "dense", asked)
            assert all(shown[int(hit.chunk_id)] for hit in hits)
            recall.append(len({int(hit.chunk_id) for hit in hits} & set(nearest.tolist())) / LIMIT)
        assert np.mean(recall) >= 0.99


def test_signs_weigh_by_the_numbers_of_the_query():
    """Two rows that differ from the query in one place each: the smaller number there is the better row."""
    query = np.array([0.9, 0.1, 0.3, 0.3], np.float32)
    signs = Signs(np.array([[-1, 1, 1, 1], [1, -1, 1, 1], [-1, -1, -1, -1]], np.float32))

    assert signs.nearest(query, 1, None).tolist() == [1]
    assert signs.nearest(query, 2, None).tolist() == [0, 1]
    assert signs.nearest(query, 9, None).tolist() == [0, 1, 2]


def test_signs_choose_no_row_that_is_hidden():
    rows = Chunks(7, dim=70).dense(100)
    shown = np.arange(100) % 10 == 0

    assert Signs(rows).nearest(rows[1], 50, shown).tolist() == list(range(0, 100, 10))
    assert Signs(rows).nearest(rows[1], 50, np.zeros(100, bool)).tolist() == []


def test_of_equal_scores_the_first_rows_are_the_best(subtests):
    for rows in [0, 1, 200, 5000]:
        for distinct in [1, 3, 1000]:
            with subtests.test(rows=rows, distinct=distinct):
                scores = np.random.default_rng(rows).integers(distinct, size=rows).astype(np.float32)
                expected = sorted(range(rows), key=lambda row: (-scores[row], row))[:LIMIT]
                assert best(scores, LIMIT).rows.tolist() == expected


def test_a_collection_that_grows_by_single_chunks_stays_in_few_segments():
    chunks, index = Chunks(8), MemoryIndex()
    for number in range(300):
        index.upsert(*SCOPE, chunks.points([number]))
    segments = index._collections[SCOPE].segments
    assert len(segments) <= math.log(SEGMENT_ROWS, 4)
    assert sum(segment.num_shown for segment in segments) == 300


def test_the_memory_of_deleted_chunks_is_given_back():
    """Less than half of the rows that a collection keeps are of chunks that are gone."""
    chunks, index = Chunks(10), MemoryIndex()
    index.upsert(*SCOPE, chunks.points(range(300)))
    for document in range(99):
        index.delete_from_collection(*SCOPE, [f"document-{document}"])
        shown = 300 - 3 * (document + 1)
        assert sum(len(segment.dense) for segment in index._collections[SCOPE].segments) <= 2 * shown


@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
def test_equal_chunks_come_in_the_same_order_however_they_came(mode):
    """Processes that copied the same chunks at different times give the same answers."""
    chunks, chance = Chunks(9, dim=384), random.Random(9)
    texts = [chunks.vectors() for _ in range(5)]
    points = [Point(f"chunk-{n}", f"document-{n // 3}", "", texts[n % 5]) for n in range(217)]
    found = []
    for portion in (1, 7, 100, 217):
        chance.shuffle(points)
        index = MemoryIndex()
        for first in range(0, len(points), portion):
            index.upsert(*SCOPE, points[first : first + portion])
        found.append([(hit.chunk_id, hit.score) for hit in index.search(*SCOPE, texts[0], LIMIT, mode)])

    assert all(order == found[0] for order in found)
