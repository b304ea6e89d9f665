"""Jobs in lists."""

import pytest

from ragkv.catalog.jobs import jobs_by_status, list_jobs
from ragkv.db.database import Database
from ragkv.db.jobs import INGEST
from ragkv.db.tables import DocumentRow, JobRow
from ragkv.db.tenants import ensure_scope
from ragkv.errors import Rejected
from ragkv.scope import Scope
from ragkv.status import JobStatus


@pytest.fixture
def scope(database: Database) -> Scope:
    return ensure_scope(database)


def queue(database: Database, scope: Scope, name: str, *statuses: JobStatus) -> str:
    """A document with a job of each status, oldest first. Returns its id."""
    with database.writing() as session:
        document = DocumentRow(tenant_id=scope.tenant_id, collection_id=scope.collection_id, sha256=name, name=name, num_bytes=1)  # fmt: skip
        session.add(document)
        session.flush()
        for status in statuses:
            session.add(JobRow(tenant_id=scope.tenant_id, document_id=document.id, kind=INGEST, status=status))
            session.flush()
        return document.id


def test_jobs_come_newest_first_a_page_at_a_time(database: Database, scope: Scope):
    for i in range(5):
        queue(database, scope, f"{i}.md", JobStatus.DONE)

    names, cursor = [], None
    while True:
        page = list_jobs(database, scope.tenant_id, None, 2, cursor)
        names.append([job.document for job in page.items])
        if (cursor := page.next) is None:
            break
    assert names == [["4.md", "3.md"], ["2.md", "1.md"], ["0.md"]]


def test_jobs_of_one_status_and_counts_of_each(database: Database, scope: Scope):
    document_id = queue(database, scope, "a.md", JobStatus.FAILED, JobStatus.QUEUED)

    failed = list_jobs(database, scope.tenant_id, JobStatus.FAILED, 10, None).items
    assert [(job.document_id, job.collection, job.status) for job in failed] == [(document_id, "default", "failed")]
    assert jobs_by_status(database, scope.tenant_id) == {"queued": 1, "running": 0, "done": 0, "failed": 1}


def test_another_tenants_jobs_are_not_listed(database: Database, scope: Scope):
    queue(database, ensure_scope(database, "other"), "theirs.md", JobStatus.DONE)

    assert list_jobs(database, scope.tenant_id, None, 10, None).items == []
    assert sum(jobs_by_status(database, scope.tenant_id).values()) == 0


@pytest.mark.parametrize("cursor", ["", "x", "bnVsbA", "W10"])
def test_a_cursor_that_is_not_ours_is_refused(database: Database, scope: Scope, cursor: str):
    with pytest.raises(Rejected, match="cursor"):
        list_jobs(database, scope.tenant_id, None, 10, cursor)
