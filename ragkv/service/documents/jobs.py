"""Lists of jobs with their status and progress."""

from datetime import datetime

import msgspec

from ragkv.service.base.database import Database
from ragkv.service.base.page import Id, Moment, from_cursor
from ragkv.service.base.page_statements import rows_behind
from ragkv.service.base.status import JobStatus, Status
from ragkv.service.base.tables import DocumentRow, JobRow
from ragkv.service.documents.job_statements import JOB_KEYS, count_jobs, jobs_of_tenant


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its document. `done` of `total` tokens of the stage are through while it runs."""

    id: str
    kind: str
    status: JobStatus
    error: str | None
    document_id: str
    document: str
    document_status: Status
    collection_id: str
    collection: str
    stage: str
    done: int
    total: int
    created_at: datetime
    updated_at: datetime


class JobPage(msgspec.Struct, frozen=True):
    """A page of jobs, newest first. `next`: the cursor of the next page, if there is one."""

    items: list[JobView]
    next: str | None


def list_jobs(tenant_id: str, status: JobStatus | None, limit: int, cursor: str | None, database: Database) -> JobPage:
    """A tenant's jobs. Raises Rejected for an invalid cursor."""
    after = from_cursor(cursor, tuple[Moment, Id])
    with database.reading() as session:
        jobs = rows_behind(session, jobs_of_tenant(tenant_id, status), JOB_KEYS, limit, after, descending=True)
        items = [_view(*row) for row in jobs.items]
    return JobPage(items, jobs.next(lambda row: (row[0].created_at, row[0].id)))


def jobs_by_status(tenant_id: str, database: Database) -> dict[JobStatus, int]:
    """Numbers of a tenant's jobs by status, 0 included."""
    with database.reading() as session:
        counts = dict(session.execute(count_jobs(tenant_id)).all())
    return {status: counts.get(status, 0) for status in JobStatus}


def _view(job: JobRow, document: DocumentRow, collection: str) -> JobView:
    return JobView(
        id=job.id,
        kind=job.kind,
        status=JobStatus(job.status),
        error=job.error,
        document_id=document.id,
        document=document.name,
        document_status=Status(document.status),
        collection_id=document.collection_id,
        collection=collection,
        stage=document.stage,
        done=document.progress_done,
        total=document.progress_total,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )
