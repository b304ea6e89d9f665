"""Statements about jobs, which record what was queued and how it ended."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, func, select, update

from ragkv.service.base.page import Keys
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import CollectionRow, DocumentRow, JobRow
from ragkv.service.documents.statements import unfinished

JOB_KEYS: Keys = (JobRow.created_at.expression, JobRow.id.expression)
INGEST = "ingest"
REBUILD = "rebuild"
"""KV made again that was evicted, whatever the rule for KV."""
KEEP = "keep"
"""KV made of chunks that were used often enough, or of a prefix whose KV was lost."""


def open_jobs(document_id: str, **changes: Any) -> Update:
    """Change the document's unfinished jobs."""
    return update(JobRow).where(*_open(document_id)).values(**changes)


def open_kind(document_id: str, kind: str) -> Select[str]:
    """The document's unfinished jobs of a kind."""
    return select(JobRow.id).where(*_open(document_id), JobRow.kind == kind)


def documents_with_lost_workers(besides: str, since: datetime) -> Select[int]:
    """The number of documents, one aside, with a job that lost a worker since a moment and did not fail."""
    lost = (JobRow.attempts > 0, JobRow.updated_at > since, JobRow.status != JobStatus.FAILED)
    return select(func.count(JobRow.document_id.distinct())).where(JobRow.document_id != besides, *lost)


def newest_cause(document_id: str) -> Select[dict[str, str] | None]:
    """The request that caused the document's last job."""
    mine = JobRow.document_id == document_id
    return select(JobRow.cause).where(mine).order_by(JobRow.created_at.desc(), JobRow.id).limit(1)


def count_all_jobs() -> Select[JobStatus, int]:
    """(status, jobs) of all tenants."""
    return select(JobRow.status, func.count()).group_by(JobRow.status)


def jobs_of_tenant(tenant_id: str, status: JobStatus | None = None) -> Select[JobRow, DocumentRow, str]:
    """(job, its document, the name of the document's collection) of a tenant's jobs, or of those with one status."""
    statement = (
        select(JobRow, DocumentRow, CollectionRow.name)
        .join(DocumentRow, DocumentRow.id == JobRow.document_id)
        .join(CollectionRow, CollectionRow.id == DocumentRow.collection_id)
        .where(JobRow.tenant_id == tenant_id)
    )
    return statement if status is None else statement.where(JobRow.status == status)


def count_jobs(tenant_id: str) -> Select[JobStatus, int]:
    """(status, jobs) of a tenant."""
    return select(JobRow.status, func.count()).where(JobRow.tenant_id == tenant_id).group_by(JobRow.status)


def waiting_jobs() -> Select[int, datetime | None]:
    """(jobs, when the oldest was queued). Reads the unfinished documents alone, by their index."""
    waiting = (unfinished(), JobRow.status == JobStatus.QUEUED)
    return (
        select(func.count(), func.min(JobRow.created_at))
        .join_from(DocumentRow, JobRow, JobRow.document_id == DocumentRow.id)
        .where(*waiting)
    )


def _open(document_id: str) -> tuple[ColumnElement[bool], ...]:
    return JobRow.document_id == document_id, JobRow.status.in_((JobStatus.QUEUED, JobStatus.RUNNING))
