"""What whoever watches a collection is told."""

from ragkv.catalog.watch import CollectionWatch
from ragkv.db.database import Database
from ragkv.db.documents import start_over
from ragkv.db.ingestion import Lease
from ragkv.db.tables import DocumentRow
from ragkv.db.tenants import ensure_collection


def fail(database: Database, document_id: str) -> None:
    lease = Lease.take(database, document_id, "worker")
    assert lease is not None
    lease.fail("it cannot be read")


def test_a_document_that_fails_again_between_two_looks_is_told_again(database: Database):
    ref = ensure_collection(database)
    with database.writing() as session:
        document = DocumentRow(
            tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256="a", name="a", num_bytes=1
        )
        session.add(document)
    watch = CollectionWatch(database, ref.collection_id)
    fail(database, document.id)
    assert [news.status for news in watch.look()] == ["failed"]
    assert watch.look() == []
    with database.writing() as session:
        session.execute(start_over(document.id))
    fail(database, document.id)

    assert [(news.status, news.error) for news in watch.look()] == [("failed", "it cannot be read")]
    assert watch.is_idle
