"""What retrieval knows of a collection follows its changes, reading what changed alone. On SQLite and on a real
PostgreSQL."""

import io
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from sqlalchemy import event, text

from ragkv.chunk import Chunk
from ragkv.retrieve.index import Vectors
from ragkv.retrieve.links import LinkCache, TitleLinks
from ragkv.retrieve.names import name_terms
from ragkv.service.base.database import Database
from ragkv.service.base.status import Status
from ragkv.service.base.tenants import find_collection_ref
from ragkv.service.documents.changes import amend_document, replace_document
from ragkv.service.documents.documents import delete_document, document_view, store_document
from ragkv.service.documents.job_statements import REBUILD
from ragkv.service.documents.lease import Lease
from ragkv.service.kv_admin.usage import request_kv
from ragkv.service.parts import Parts
from tests.integration.filled import source_of

TITLES = ["Ada Lovelace", "Bell", "Ada Lovelace: Youth"]
NAMES = ["handbook_2024.pdf", "Handbook Bergen.docx", "plan.txt"]
NAME_TERMS = sorted(frozenset[int]().union(*map(name_terms, NAMES)))
VECTORS = Vectors(np.ones(2, np.float32), np.array([1], np.uint32), np.array([1], np.float32))


@pytest.fixture
def parts(parts_on_either: Parts) -> Parts:
    return parts_on_either


class Follower:
    """An API process with a connection of its own."""

    def __init__(self, parts: Parts) -> None:
        scope = find_collection_ref(parts.database)
        self.place = scope.tenant_id, scope.collection_id
        self.index_fingerprint = parts.index_fingerprint
        self.database = Database(parts.settings.database)
        self.source = source_of(self.database, parts.index_fingerprint)
        self.links = LinkCache(self.source)

    def check(self) -> None:
        """It knows what one that comes now would read."""
        anew = source_of(self.database, self.index_fingerprint)
        documents = self.source.indexed_documents(*self.place)
        assert documents == anew.indexed_documents(*self.place)
        assert self.source.of_other_encoders(*self.place) == anew.of_other_encoders(*self.place)
        assert self.source.outdated(*self.place) == anew.outdated(*self.place)
        assert vars(self.links.of(*self.place, documents)) == vars(TitleLinks(anew.titles(*self.place)))
        assert self.source.named(*self.place, NAME_TERMS, 9) == anew.named(*self.place, NAME_TERMS, 9)


@pytest.fixture
def follower(parts: Parts) -> Iterator[Follower]:
    follower = Follower(parts)
    yield follower
    follower.database.close()


def upload(parts: Parts, dice: random.Random) -> str:
    body = io.BytesIO(dice.randbytes(16))
    name = dice.choice(NAMES)
    return store_document(find_collection_ref(parts.database), name, body, parts.intake).document_id


def read(parts: Parts, document_id: str, titles: list[str]) -> None:
    """What a worker writes of a document that waits."""
    lease = Lease.take(parts.database, document_id, "worker")
    assert lease is not None
    chunks = [Chunk(f"{document_id}:{lease.document().sha256[:8]}:{i}", document_id, i, title, "text", 0, 4, None, (1,)) for i, title in enumerate(titles)]  # fmt: skip
    lease.store_chunks(chunks, [VECTORS] * len(chunks), Status.SEARCHABLE, index_fingerprint=parts.index_fingerprint)
    lease.enter(Status.SEARCHABLE)
    lease.finish([], "kv fingerprint")


def test_a_document_is_known_by_the_words_of_its_name_once_it_can_be_searched(parts: Parts, follower: Follower):
    document_id = upload(parts, random.Random(1))

    def named(limit: int = 1, document_ids: frozenset[str] | None = None) -> list[tuple[int, frozenset[str]]]:
        follower.source.indexed_documents(*follower.place)
        return [*follower.source.named(*follower.place, sorted(name_terms("BERGEN")), limit, document_ids)]

    amend_document(follower.place[0], document_id, parts.database, "bergen-plan.PDF")
    assert named() == [(0, frozenset())]
    read(parts, document_id, ["Leave"])
    assert named() == named(document_ids=frozenset([document_id, "other"])) == [(1, frozenset([document_id]))]
    assert named(limit=0) == named(document_ids=frozenset(["other"])) == [(1, frozenset())]
    amend_document(follower.place[0], document_id, parts.database, "oslo.pdf")
    assert named() == [(0, frozenset())]


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    executed: list[str] = []

    def note(*arguments: object) -> None:
        executed.append(str(arguments[2]))

    event.listen(database.engine, "before_cursor_execute", note)
    yield executed
    event.remove(database.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_others_do_it_knows_what_a_new_process_would(parts: Parts, follower: Follower, seed: int):
    dice = random.Random(seed)
    documents = [upload(parts, dice) for _ in range(4)]
    waiting = set(documents)
    for _ in range(40):
        match dice.choice(["upload", "read", "read", "amend", "rename", "replace", "delete", "restart"]):
            case "upload":
                documents.append(upload(parts, dice))
                waiting.add(documents[-1])
            case "read" if waiting:
                chosen = dice.choice(sorted(waiting))
                read(parts, chosen, dice.choices(TITLES, k=dice.randint(0, 3)))
                waiting.remove(chosen)
            case "amend" if documents:
                amend_document(follower.place[0], dice.choice(documents), parts.database, patch={"n": dice.random()})
            case "rename" if documents:
                amend_document(follower.place[0], dice.choice(documents), parts.database, dice.choice(NAMES))
            case "replace" if documents:
                chosen, name = dice.choice(documents), dice.choice(NAMES)
                replace_document(
                    follower.place[0], chosen, name, io.BytesIO(dice.randbytes(16)), parts.intake, parts.removal
                )
                waiting.add(chosen)
            case "delete" if documents:
                chosen = documents.pop(dice.randrange(len(documents)))
                delete_document(follower.place[0], chosen, parts.removal)
                waiting.discard(chosen)
            case "restart":
                parts.refresh_outdated()
        if dice.random() < 0.6:
            follower.check()
    follower.check()


def test_a_new_document_is_all_that_is_read(parts: Parts, follower: Follower):
    dice = random.Random(0)
    for _ in range(3):
        read(parts, upload(parts, dice), TITLES)
    follower.check()
    new = upload(parts, dice)
    read(parts, new, TITLES[:1])
    with statements(follower.database) as executed:
        documents = follower.source.indexed_documents(*follower.place)
        follower.links.of(*follower.place, documents)

    assert new in documents
    of_documents = [one for one in executed if "FROM documents" in one]
    of_chunks = [one for one in executed if "FROM chunks" in one]
    assert ["changed_in >" in one for one in of_documents] == [True]
    assert len(of_chunks) == 1 and ("json_each" in of_chunks[0] or "ANY" in of_chunks[0])


def test_a_document_that_was_looked_for_while_it_was_indexed_is_of_this_encoder_afterwards(
    parts: Parts, follower: Follower
):
    """Its chunks are there before its points on a Qdrant server are, and only then is it said what made them."""
    document_id = upload(parts, random.Random(0))
    lease = Lease.take(parts.database, document_id, "worker")
    assert lease is not None
    chunk = Chunk(f"{document_id}:0", document_id, 0, "Bell", "text", 0, 4, None, (1,))
    lease.store_chunks([chunk], [VECTORS], Status.INDEXING)
    assert follower.source.of_other_encoders(*follower.place) == {document_id}

    lease.enter(Status.SEARCHABLE, index_fingerprint=parts.index_fingerprint)

    assert follower.source.of_other_encoders(*follower.place) == frozenset()
    follower.check()


def test_patches_at_once_all_stay(parts: Parts):
    document_id = upload(parts, random.Random(0))
    tenant_id = find_collection_ref(parts.database).tenant_id
    keys = [f"key{number}" for number in range(8)]

    with ThreadPoolExecutor(len(keys)) as threads:
        list(threads.map(lambda key: amend_document(tenant_id, document_id, parts.database, patch={key: 1}), keys))

    assert document_view(tenant_id, document_id, parts.database).metadata == dict.fromkeys(keys, 1)


def test_kv_is_not_asked_for_of_a_document_that_is_to_be_read(parts: Parts):
    """It was replaced since it was found: as searchable as before it would keep the text of the old file."""
    document_id = upload(parts, random.Random(0))
    tenant_id = find_collection_ref(parts.database).tenant_id
    with parts.database.writing() as session:
        assert not request_kv(session, tenant_id, document_id, REBUILD)
    assert document_view(tenant_id, document_id, parts.database).status is Status.ACCEPTED

    read(parts, document_id, TITLES)
    with parts.database.writing() as session:
        assert request_kv(session, tenant_id, document_id, REBUILD)
    assert document_view(tenant_id, document_id, parts.database).status is Status.SEARCHABLE


def test_a_change_that_writes_no_chunks_leaves_the_same_object(parts: Parts, follower: Follower):
    document_id = upload(parts, random.Random(0))
    read(parts, document_id, TITLES)
    known = follower.source.indexed_documents(*follower.place)
    amend_document(follower.place[0], document_id, parts.database, name="other.txt")

    assert follower.source.indexed_documents(*follower.place) is known


def test_changes_of_a_process_that_marks_none_are_seen_too(parts: Parts, follower: Follower):
    """One of an older version, which a newer one migrated the database for; also among changes that are marked."""
    dice = random.Random(0)
    documents = [upload(parts, dice) for _ in range(2)]
    for document_id in documents:
        read(parts, document_id, TITLES)
    follower.check()
    with parts.database.writing() as session:
        session.execute(text("UPDATE documents SET version = version + 1 WHERE id = :id"), {"id": documents[0]})
        session.execute(text("UPDATE collections SET generation = generation + 1"))
    read(parts, upload(parts, dice), TITLES)

    follower.check()


def test_titles_that_are_held_follow_without_being_asked_for(parts: Parts, follower: Follower):
    """What a sweep of this process's memory does: nothing is read that did not change, and what is deleted goes."""
    dice = random.Random(0)
    kept, gone = (upload(parts, dice) for _ in range(2))
    for document_id in (kept, gone):
        read(parts, document_id, TITLES)
    follower.check()
    delete_document(follower.place[0], gone, parts.removal)
    documents = follower.source.indexed_documents(*follower.place)
    with statements(follower.database) as executed:
        follower.links.refresh(*follower.place, documents)
        links = follower.links.of(*follower.place, documents)

    assert executed == []
    assert not any(gone in chunk for group in links.mentioned("Ada Lovelace, Bell") for chunk in group)
    follower.check()
