"""Searches among more documents than one request to Qdrant may name find what one that names all would."""

import warnings
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from qdrant_client import QdrantClient

from ragkv.retrieve import sparse
from ragkv.retrieve.index import Hit, Point, SearchMode, Vectors
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.qdrant import MOST_NAMED, QdrantIndex

DIM = 8
DOCUMENTS = 2 * MOST_NAMED + 1000
WORDS = [f"word{i}" for i in range(200)]
LIMIT = 40


@pytest.fixture(scope="module")
def points() -> list[Point]:
    """One a document."""
    dice = np.random.default_rng(5)
    vectors = dice.normal(size=(DOCUMENTS, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [" ".join(dice.choice(WORDS, size=dice.integers(3, 30))) for _ in range(DOCUMENTS)]
    pairs = enumerate(zip(vectors, texts, strict=True))
    return [
        Point(f"{i:032x}", f"{i:032x}", "", Vectors(vector, *sparse.document_vectors([text])[0]))
        for i, (vector, text) in pairs
    ]


@pytest.fixture(scope="module")
def in_qdrant(points: list[Point]) -> Iterator[QdrantIndex]:
    index = QdrantIndex(QdrantClient(location=":memory:"), "Qdrant in this process")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Payload indexes have no effect")
        index.ensure(DIM)
    index.upsert("t", "c", points)
    index.upsert("t", "another", points[:10])
    yield index
    index.close()


@pytest.fixture(scope="module")
def in_memory(points: list[Point]) -> MemoryIndex:
    index = MemoryIndex()
    index.upsert("t", "c", points)
    return index


@pytest.fixture(scope="module")
def asked(points: list[Point]) -> Vectors:
    return Vectors(points[3].vectors.dense, *sparse.query_vector(" ".join(WORDS[:6])))


@pytest.fixture(scope="module")
def nearest_first(points: list[Point], asked: Vectors) -> list[str]:
    """Documents by their distance to the question, those with its terms before those without."""
    terms = set(asked.indices.tolist())

    def distance(point: Point) -> tuple[bool, float]:
        return terms.isdisjoint(point.vectors.indices.tolist()), -float(point.vectors.dense @ asked.dense)

    return [point.document_id for point in sorted(points, key=distance)]


CHOICES = {
    "all": slice(None),
    "all but those nearest": slice(1500, None),
    "all but some": slice(30, None),
    "every other": slice(None, None, 2),
    "those furthest away": slice(-MOST_NAMED - 1, None),
    "those nearest": slice(None, MOST_NAMED + 1),
}


def test_they_find_the_same_as_an_index_that_looks_at_all(
    in_qdrant: QdrantIndex, in_memory: MemoryIndex, nearest_first: list[str], asked: Vectors, subtests: pytest.Subtests
):
    of_one_kind = product(("all but those nearest", "every other"), ("dense", "sparse"))
    for name, mode in (*product(CHOICES, ("hybrid",)), *of_one_kind):
        with subtests.test(mode=mode, choice=name):
            chosen = frozenset(nearest_first[CHOICES[name]])
            found = in_qdrant.search("t", "c", asked, LIMIT, mode, chosen)

            same(found, in_memory.search("t", "c", asked, LIMIT, mode, chosen))
            assert {hit.document_id for hit in found} <= chosen


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
def test_a_question_without_terms(
    in_qdrant: QdrantIndex, in_memory: MemoryIndex, nearest_first: list[str], asked: Vectors, mode: SearchMode
):
    chosen = frozenset(nearest_first[30:])
    bare = Vectors(asked.dense, np.array([], np.uint32), np.array([], np.float32))

    same(in_qdrant.search("t", "c", bare, LIMIT, mode, chosen), in_memory.search("t", "c", bare, LIMIT, mode, chosen))


def test_more_hits_than_there_are(in_qdrant: QdrantIndex, nearest_first: list[str], asked: Vectors):
    chosen = frozenset(nearest_first[-MOST_NAMED - 1 :])

    assert len(in_qdrant.search("t", "c", asked, DOCUMENTS, "dense", chosen)) == len(chosen)


def test_what_another_collection_holds_is_not_found(in_qdrant: QdrantIndex, nearest_first: list[str], asked: Vectors):
    assert len(in_qdrant.search("t", "another", asked, LIMIT, "dense", frozenset(nearest_first))) == 10
    assert in_qdrant.search("stranger", "c", asked, LIMIT, "hybrid", frozenset(nearest_first)) == []


def same(found: list[Hit], wanted: list[Hit]) -> None:
    """The same scores; the same chunks, but for those that score like the last one."""
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in wanted], rel=1e-4)
    last = min((hit.score for hit in wanted), default=0.0) * 1.0001
    assert {hit.chunk_id for hit in found if hit.score > last} == {hit.chunk_id for hit in wanted if hit.score > last}
