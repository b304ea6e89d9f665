"""Two worker processes at once: on one document, one collection and one folder of KV."""

import io
from collections.abc import Iterator

import msgspec
import pytest
from sqlalchemy import func, select

from ingest.parts import IngestParts
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, DocumentRow
from ragkv.service.checks.check import WHILE_STOPPED
from ragkv.service.checks.fsck import examine
from ragkv.service.documents.documents import accept_document
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.chaos.world import World
from tests.conftest import lend_models
from tests.support.documents import LONG, kv_files
from tests.support.echo_engine import engine_for_workers
from tests.support.qdrant_server import QdrantServer

WORKERS = ("one", "other")
DOCUMENTS, RACES = 8, 6


@pytest.fixture
def world(settings: Settings, migrated_postgres_url: str, loaded: IngestParts) -> Iterator[World]:
    """Both workers, on PostgreSQL and with Qdrant over HTTP."""
    qdrant = QdrantServer()
    qdrant.start()
    settings = msgspec.structs.replace(settings, database_url=migrated_postgres_url, qdrant_url=qdrant.url)
    parts = Parts(settings)
    lend_models(parts, loaded)
    parts.prepare()
    world = World(settings, parts, 0, None, qdrant)
    world.redis.start()
    for name in WORKERS:
        world.launch(name, "run_worker")
    with engine_for_workers(settings):
        yield world
    world.close()
    parts.close()
    qdrant.stop()


def test_two_workers_at_once_read_each_document_once_and_share_its_kv(world: World):
    parts = world.parts
    for number in range(DOCUMENTS):  # with all chunks but the last in common
        accept(LONG + b"Drawing number %d hangs in the office.\n" % number, parts)
    world.wait_until(lambda: num_owners(parts) == len(WORKERS))
    world.wait_until(lambda: world.states() == {})

    for number in range(RACES):
        document_id = accept(b"Both workers are told of document %d." % number, parts)
        parts.queue.enqueue_ingest(document_id)
        world.wait_until(lambda: world.states() == {})

    for name in WORKERS:
        world.kill(name)
    with parts.database.reading() as session:
        documents = session.scalars(select(DocumentRow)).all()
        keys = set(session.scalars(select(ChunkRow.kv_key)))
        num_chunks = session.scalar(select(func.count()).select_from(ChunkRow))
    assert [document.status for document in documents] == [Status.READY] * (DOCUMENTS + RACES)
    assert [document.version for document in documents] == [1] * (DOCUMENTS + RACES), "written by one worker, once"
    assert sum(document.num_chunks for document in documents) == num_chunks > len(keys)
    assert kv_files(parts) == keys
    assert {check.check: check.found for check in examine(WHILE_STOPPED, parts) if check.found} == {}


def accept(body: bytes, parts: Parts) -> str:
    return accept_document(parts.default_collection, "a.md", io.BytesIO(body), parts.intake).document_id


def num_owners(parts: Parts) -> int:
    """Workers that hold a document now."""
    with parts.database.reading() as session:
        return session.scalar(select(func.count(DocumentRow.lease_owner.distinct()))) or 0
