"""Leases of documents: a worker that was lost is counted, one that gave its document back is not."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from ragkv.errors import Conflict
from ragkv.ids import new_id, utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.tables import DocumentRow, JobRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.documents.lease import LATELY, Lease
from tests.conftest import copy_template


@pytest.fixture
def database(tmp_path: Path, sqlite_template: Path) -> Iterator[Database]:
    url = f"sqlite:///{tmp_path / 'ragkv.sqlite3'}"
    copy_template(sqlite_template, url)
    database = Database(url)
    yield database
    database.close()


def add_document(database: Database) -> str:
    ref = ensure_collection(database)
    owner = {"tenant_id": ref.tenant_id, "collection_id": ref.collection_id}
    row = DocumentRow(id=new_id(), sha256=new_id(), name="a.txt", num_bytes=1, **owner)
    with database.writing() as session:
        session.add(row)
        session.flush()
        session.add(JobRow(tenant_id=ref.tenant_id, document_id=row.id, kind="ingest"))
    return row.id


def take(database: Database, document_id: str, owner: str = "worker") -> Lease:
    lease = Lease.take(database, document_id, owner)
    assert lease is not None
    return lease


def lapse(database: Database, document_id: str) -> None:
    with database.writing() as session:
        session.execute(update(DocumentRow).where(DocumentRow.id == document_id).values(lease_until=utc_now() - LATELY))


def lose_worker(database: Database, document_id: str) -> None:
    """Let the lease of a worker lapse, and another worker take the document."""
    take(database, document_id)
    lapse(database, document_id)
    take(database, document_id, "another")


def test_a_document_is_held_by_one_worker(database: Database):
    document_id = add_document(database)
    first = take(database, document_id, "first")

    assert Lease.take(database, document_id, "second") is None
    lapse(database, document_id)
    second = take(database, document_id, "second")
    with pytest.raises(Conflict):
        first.renew()
    second.renew()


@pytest.mark.parametrize(
    ("release", "attempts"),
    [
        (lambda lease: lease.give_back("it cannot be read"), 1),
        (lambda lease: lease.give_back(None), 0),
        (lambda lease: lease.postpone("the index is away"), 0),
        (lambda lease: lease.end_turn(), 0),
    ],
    ids=["failed", "interrupted", "postponed", "end of its turn"],
)
def test_nothing_but_a_failure_costs_a_document_an_attempt(
    database: Database, release: Callable[[Lease], None], attempts: int
):
    document_id = add_document(database)
    release(take(database, document_id))

    with database.reading() as session:
        document = session.get_one(DocumentRow, document_id)
        assert (document.attempts, document.lease_owner) == (attempts, None)


def test_documents_that_lost_their_workers_lately_are_counted_and_no_others(database: Database):
    mine, lost, given_back, untouched, long_ago, failed = (add_document(database) for _ in range(6))
    for document_id in (mine, lost, long_ago, failed):
        lose_worker(database, document_id)
    take(database, given_back).give_back("it cannot be read")
    take(database, untouched)
    Lease(database, failed, "another").fail("the worker died 3 times")
    with database.writing() as session:
        before = utc_now() - timedelta(minutes=11)
        session.execute(update(JobRow).where(JobRow.document_id == long_ago).values(updated_at=before))

    assert Lease(database, mine, "another").others_lost_workers() == len([lost])
    assert Lease(database, untouched, "worker").others_lost_workers() == len([mine, lost])
