"""Deleting much: in short transactions, whatever happens between two of them. On SQLite and on a real PostgreSQL."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from sqlalchemy import event, func, select, update

from api.v1.collections import delete_collection
from ragkv.errors import Conflict, NotFound, Unavailable
from ragkv.retrieve.index import Point, Vectors
from ragkv.retrieve.qdrant import QdrantIndex
from ragkv.service.base.tables import Base, ChunkRow, CollectionRow, DocumentRow, KVEntryRow, QuestionRow
from ragkv.service.base.tenants import CollectionRef, collection_ref, find_collection_ref
from ragkv.service.checks import leftovers
from ragkv.service.checks.cleaning import clean, collect_garbage
from ragkv.service.collections.collections import BATCH_CHUNKS, BATCH_QUESTIONS, delete_in_batches, make_collection
from ragkv.service.parts import Parts
from tests.integration.filled import add_documents, add_files
from tests.integration.test_statistics import question
from tests.support.qdrant_server import QdrantServer

DOCUMENTS, CHUNKS = 300, 4
"""More than two batches."""


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def parts(parts_on_either: Parts) -> Parts:
    return parts_on_either


@pytest.fixture
def large(parts: Parts) -> CollectionRef:
    """A collection beside the default one, which shares a file and a chunk's KV with it."""
    home = find_collection_ref(parts.database)
    made = collection_ref(home.tenant_id, make_collection(home.tenant_id, "large", parts.database).id, parts.database)
    add_documents(parts.database, made, DOCUMENTS, CHUNKS, "d")
    add_documents(parts.database, home, 1, 2, "kept")
    with parts.database.writing() as session:
        shared = session.get_one(DocumentRow, "d7").sha256
        session.execute(update(DocumentRow).where(DocumentRow.id == "kept0").values(sha256=shared))
        key = session.get_one(ChunkRow, "dc9").kv_key
        session.execute(update(ChunkRow).where(ChunkRow.id == "keptc0").values(kv_key=key))
        session.add_all(question(made, 100.0) for _ in range(BATCH_QUESTIONS + 5))
        session.add(question(home, 100.0))
    add_files(parts)
    return made


def delete(parts: Parts, ref: CollectionRef) -> None:
    asyncio.run(delete_collection(ref.tenant_id, ref.collection_id, parts.removal))


def counts(parts: Parts) -> dict[str, int]:
    tables: tuple[type[Base], ...] = (CollectionRow, DocumentRow, ChunkRow, KVEntryRow, QuestionRow)
    with parts.database.reading() as session:
        found = {table.__tablename__: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}
    found["files"] = sum(path.is_file() for path in parts.settings.files_dir.rglob("*"))
    return found | {"kv files": sum(path.is_file() for path in parts.settings.kv_dir.rglob("*"))}


ALL_BUT_KEPT = {
    "collections": 1, "documents": 1, "chunks": 2, "kv_entries": 2, "questions": 1, "files": 1, "kv files": 2,
}  # fmt: skip


def test_nothing_of_a_large_collection_stays_and_nothing_else_goes(parts: Parts, large: CollectionRef):
    delete(parts, large)

    assert counts(parts) == ALL_BUT_KEPT
    with pytest.raises(NotFound):
        delete(parts, large)


def test_the_default_collection_stays_whole(parts: Parts, large: CollectionRef):
    with pytest.raises(Conflict):
        delete(parts, find_collection_ref(parts.database))
    assert counts(parts)["documents"] == DOCUMENTS + 1


def test_a_step_removes_a_bounded_number_of_whole_documents(parts: Parts, large: CollectionRef):
    steps = delete_in_batches(large.tenant_id, large.collection_id, parts.removal)
    chunks = [counts(parts)["chunks"], *(counts(parts)["chunks"] for _ in steps)]

    removed = [before - after for before, after in pairwise(chunks)]
    assert max(removed) == BATCH_CHUNKS
    assert sum(removed) == DOCUMENTS * CHUNKS
    assert all(number % CHUNKS == 0 for number in removed)


def test_a_document_larger_than_a_batch_goes_by_itself(parts: Parts):
    home = find_collection_ref(parts.database)
    made = collection_ref(home.tenant_id, make_collection(home.tenant_id, "one", parts.database).id, parts.database)
    add_documents(parts.database, made, 2, BATCH_CHUNKS + 1, "huge")
    steps = delete_in_batches(made.tenant_id, made.collection_id, parts.removal)

    assert [counts(parts)["documents"] for _ in steps] == [1, 0]


@pytest.mark.parametrize("moment", ["begin", "commit"])
def test_a_process_that_is_killed_anywhere_leaves_whole_documents_and_what_the_sweep_finds(
    parts: Parts, large: CollectionRef, moment: str
):
    """Before a transaction begins, and before one is committed: first at the first one, then at the second, and so
    on."""
    killed = 0
    while dies_at(parts, large, moment, killed):
        assert leftovers.missing_files(parts.database, parts.files) == []
        with parts.database.reading() as session:
            chunks = select(ChunkRow.document_id, func.count()).group_by(ChunkRow.document_id)
            in_documents = dict(session.execute(chunks).all())
            documents = set(session.scalars(select(DocumentRow.id)))
        assert set(in_documents) == documents
        assert {number for document_id, number in in_documents.items() if document_id != "kept0"} <= {CHUNKS}
        killed += 1

    assert killed >= 4
    sweep_tomorrow(parts)
    assert counts(parts) == ALL_BUT_KEPT


def test_an_index_that_goes_away_leaves_the_rest_to_another_try(parts: Parts, large: CollectionRef):
    server = QdrantServer()
    server.start()
    index = parts.server_index = QdrantIndex.connect(server.url)
    index.ensure(2)
    vectors = Vectors(np.array([1, 0], np.float32), np.array([], np.uint32), np.array([], np.float32))
    points = [Point(f"dc{CHUNKS * i}", f"d{i}", "", vectors) for i in range(DOCUMENTS)]
    index.upsert(large.tenant_id, large.collection_id, points)
    index.upsert(large.tenant_id, "other", [Point("x", "kept0", "", vectors)])

    steps = delete_in_batches(large.tenant_id, large.collection_id, parts.removal)
    next(steps)
    server.stop()
    with pytest.raises(Unavailable):
        next(steps)
    assert 0 < counts(parts)["documents"] - 1 < DOCUMENTS

    server.start()
    delete(parts, large)
    assert counts(parts) == ALL_BUT_KEPT
    assert [held.document_id for held in index.held()] == ["kept0"]
    index.close()
    parts.server_index = None
    server.stop()


def test_others_write_meanwhile(parts: Parts, large: CollectionRef):
    """Between any two batches: nobody waits for the whole."""
    home = find_collection_ref(parts.database)
    left: list[int] = []
    for _ in delete_in_batches(large.tenant_id, large.collection_id, parts.removal):
        with parts.database.writing() as session:
            session.add(question(home, 100.0))
        left.append(counts(parts)["documents"])

    assert len(set(left)) > 2


def dies_at(parts: Parts, large: CollectionRef, moment: str, number: int) -> bool:
    """Whether a deletion had a transaction of this number to be killed at."""
    with killed_at(parts, moment, number) as died:
        try:
            for _ in delete_in_batches(large.tenant_id, large.collection_id, parts.removal):
                pass
        except (Killed, NotFound):
            pass
    return died[0]


@contextmanager
def killed_at(parts: Parts, moment: str, number: int) -> Iterator[list[bool]]:
    seen, died = [0], [False]

    def count(connection: object) -> None:
        seen[0] += 1
        if seen[0] > number:
            died[0] = True
            raise Killed

    event.listen(parts.database.engine, moment, count)
    yield died
    event.remove(parts.database.engine, moment, count)


def sweep_tomorrow(parts: Parts) -> None:
    """The workers' sweep, once what a crash left is old enough not to belong to work under way."""
    for folder in (parts.settings.files_dir, parts.settings.kv_dir):
        for path in folder.rglob("*"):
            if path.is_file():
                os.utime(path, (time.time() - 25 * 3600,) * 2)
    clean(parts.database, parts.removal, parts.server_index)
    collect_garbage(parts)
