"""Jobs in lists."""

import pytest

from ragkv.errors import Rejected
from ragkv.service.base.database import Database
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import DocumentRow, JobRow
from ragkv.service.base.tenants import CollectionRef, ensure_collection
from ragkv.service.documents.job_statements import INGEST
from ragkv.service.documents.jobs import jobs_by_status, list_jobs


@pytest.fixture
def ref(database: Database) -> CollectionRef:
    return ensure_collection(database)


def queue(database: Database, ref: CollectionRef, name: str, *statuses: JobStatus) -> str:
    """A document with a job of each status, oldest first. Returns its id."""
    with database.writing() as session:
        document = DocumentRow(tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256=name, name=name, num_bytes=1)  # fmt: skip
        session.add(document)
        session.flush()
        for status in statuses:
            session.add(JobRow(tenant_id=ref.tenant_id, document_id=document.id, kind=INGEST, status=status))
            session.flush()
        return document.id


def test_jobs_come_newest_first_a_page_at_a_time(database: Database, ref: CollectionRef):
    for i in range(5):
        queue(database, ref, f"{i}.md", JobStatus.DONE)

    names, cursor = [], None
    while True:
        page = list_jobs(ref.tenant_id, None, 2, cursor, database)
        names.append([job.document for job in page.items])
        if (cursor := page.next) is None:
            break
    assert names == [["4.md", "3.md"], ["2.md", "1.md"], ["0.md"]]


def test_jobs_of_one_status_and_counts_of_each(database: Database, ref: CollectionRef):
    document_id = queue(database, ref, "a.md", JobStatus.FAILED, JobStatus.QUEUED)

    failed = list_jobs(ref.tenant_id, JobStatus.FAILED, 10, None, database).items
    assert [(job.document_id, job.collection, job.status) for job in failed] == [(document_id, "default", "failed")]
    assert jobs_by_status(ref.tenant_id, database) == {"queued": 1, "running": 0, "done": 0, "failed": 1}


def test_another_tenants_jobs_are_not_listed(database: Database, ref: CollectionRef):
    queue(database, ensure_collection(database, "other"), "theirs.md", JobStatus.DONE)

    assert list_jobs(ref.tenant_id, None, 10, None, database).items == []
    assert sum(jobs_by_status(ref.tenant_id, database).values()) == 0


@pytest.mark.parametrize("cursor", ["", "x", "bnVsbA", "W10"])
def test_a_cursor_that_is_not_ours_is_refused(database: Database, ref: CollectionRef, cursor: str):
    with pytest.raises(Rejected, match="cursor"):
        list_jobs(ref.tenant_id, None, 10, cursor, database)
