"""An in-memory index follows its source."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ragkv.ids import BATCH
from ragkv.retrieve import sparse
from ragkv.retrieve.index import Point, Vectors
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.mirror import Mirror

QUERY = Vectors(np.array([1, 0], np.float32), *sparse.query_vector("river"))


class Documents:
    """A source in memory: one chunk per document. Counts how often points are read."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.reads: list[list[str]] = []

    def put(self, document_id: str, text: str) -> None:
        self.versions[document_id] = self.versions.get(document_id, 0) + 1
        self.texts[document_id] = text

    def indexed_documents(self, tenant_id: str, collection_id: str) -> Mapping[str, int]:
        return dict(self.versions)

    def points(self, document_ids: Sequence[str]) -> list[Point]:
        self.reads.append(list(document_ids))
        dense = np.array([1, 0], np.float32)
        return [
            Point(f"{d}-{self.versions[d]}", d, d, Vectors(dense, *sparse.document_vectors([text])[0]))
            for d, text in self.texts.items()
            if d in document_ids
        ]


@pytest.fixture
def documents():
    source = Documents()
    source.put("a", "the river bank")
    source.put("b", "a savings bank")
    return source


@pytest.fixture
def index():
    index = MemoryIndex()
    index.ensure(2)
    return index


def found(index: MemoryIndex) -> set[str]:
    return {hit.chunk_id for hit in index.search("t", "c", QUERY, 10, "dense")}


def test_the_first_sync_copies_everything(documents, index):
    assert Mirror(index, documents).sync("t", "c") == {"a": 1, "b": 1}
    assert found(index) == {"a-1", "b-1"}


def test_nothing_is_read_when_nothing_changed(documents, index):
    mirror = Mirror(index, documents)
    mirror.sync("t", "c")
    mirror.sync("t", "c")
    assert documents.reads == [["a", "b"]]


def test_only_what_is_new_is_read(documents, index):
    mirror = Mirror(index, documents)
    mirror.sync("t", "c")
    documents.put("d", "another river")
    mirror.sync("t", "c")
    assert documents.reads[1:] == [["d"]]
    assert found(index) == {"a-1", "b-1", "d-1"}


def test_a_changed_document_loses_its_old_chunks(documents, index):
    mirror = Mirror(index, documents)
    mirror.sync("t", "c")
    documents.put("a", "the river mouth")
    mirror.sync("t", "c")
    assert found(index) == {"a-2", "b-1"}


def test_a_deleted_document_is_forgotten(documents, index):
    mirror = Mirror(index, documents)
    mirror.sync("t", "c")
    del documents.versions["a"], documents.texts["a"]
    mirror.sync("t", "c")
    assert found(index) == {"b-1"}


def test_a_failed_read_is_made_good_by_the_next_sync(documents, index):
    """A database that goes away between the two reads."""
    mirror = Mirror(index, documents)
    read = documents.points
    documents.points = lambda ids: (_ for _ in ()).throw(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        mirror.sync("t", "c")
    documents.points = read
    mirror.sync("t", "c")
    assert found(index) == {"a-1", "b-1"}


def test_many_documents_come_in_portions_and_those_before_a_failure_stay(documents, index):
    """So that memory never holds all points of a large collection beside its index."""
    for number in range(BATCH):
        documents.put(f"d{number}", "river")
    mirror = Mirror(index, documents)
    read = documents.points
    documents.points = lambda ids: read(ids) if len(ids) == BATCH else (_ for _ in ()).throw(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        mirror.sync("t", "c")
    documents.points = read
    mirror.sync("t", "c")
    assert [len(ids) for ids in documents.reads] == [BATCH, 2]
