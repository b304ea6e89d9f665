"""What whoever watches a collection is told."""

from contextlib import closing
from datetime import timedelta

import pytest

from ragkv.service.base.database import Database
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import CollectionRef, ensure_collection
from ragkv.service.documents.lease import Lease
from ragkv.service.documents.statements import start_over
from ragkv.service.documents.watch import CollectionWatch
from tests.support.wrong_clock import clock_ahead


def fail(database: Database, document_id: str) -> None:
    lease = Lease.take(database, document_id, "worker")
    assert lease is not None
    lease.fail("it cannot be read")


def add_document(database: Database, ref: CollectionRef) -> str:
    with database.writing() as session:
        document = DocumentRow(
            tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256="a", name="a", num_bytes=1
        )
        session.add(document)
    return document.id


def test_a_document_that_fails_again_between_two_looks_is_told_again(database: Database):
    ref = ensure_collection(database)
    document_id = add_document(database, ref)
    watch = CollectionWatch(database, ref.collection_id)
    fail(database, document_id)
    assert [news.status for news in watch.look()] == ["failed"]
    assert watch.look() == []
    with database.writing() as session:
        session.execute(start_over(document_id))
    fail(database, document_id)

    assert [(news.status, news.error) for news in watch.look()] == [("failed", "it cannot be read")]
    assert watch.is_idle


@pytest.mark.parametrize(("worker", "watcher"), [(-30, 0), (0, 30)])
def test_the_end_is_told_though_the_clocks_of_worker_and_watcher_differ(
    migrated_postgres_url: str, worker: int, watcher: int
):
    """By seconds. The database's clock counts."""
    with closing(Database(migrated_postgres_url)) as database:
        ref = ensure_collection(database)
        document_id = add_document(database, ref)
        watch = CollectionWatch(database, ref.collection_id)
        with clock_ahead(timedelta(seconds=watcher)):
            assert [news.status for news in watch.look()] == ["accepted"]
        with clock_ahead(timedelta(seconds=worker)):
            fail(database, document_id)
        with clock_ahead(timedelta(seconds=watcher)):
            assert [news.status for news in watch.look()] == ["failed"]
