"""Statements about the queue: turns, by which a worker takes waiting documents, and jobs, which record what was queued
and how it ended.

Documents that cannot be searched yet come before those that only lack KV, or, once the share of KV is due, after them.
Of each kind tenants take turns, the one that was served least recently first. Of a tenant's documents the oldest is
first; of those that only lack KV, the ones that answers have used without it. The database decides: a message in the
queue only wakes a worker.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from sqlalchemy import ColumnElement, Delete, Select, Update, delete, exists, func, select, update
from sqlalchemy.orm import Session

from ragkv.observe.traces import cause
from ragkv.service.base.page import Keys
from ragkv.service.base.status import OPEN_JOBS, UNREAD, JobStatus, Status
from ragkv.service.base.tables import ChunkRow, CollectionRow, DocumentRow, JobRow, TenantRow
from ragkv.service.documents.chunk_statements import USED_WITHOUT_KV
from ragkv.service.documents.statements import unfinished, waiting

JOB_KEYS: Keys = (JobRow.created_at.expression, JobRow.id.expression)
INGEST = "ingest"
REBUILD = "rebuild"
"""KV made again that was evicted, whatever the rule for KV."""
KEEP = "keep"
"""KV made of chunks that were used often enough, or of a prefix whose KV was lost."""
BEGUN_FIRST = tuple(reversed(UNREAD))
LACKS_KV = (Status.SEARCHABLE,)
Kinds = Sequence[Sequence[Status]]
"""Statuses of documents that wait, by kind: the first kind is served first."""


class Others(Enum):
    """Documents that wait and come before more of the one that is worked on: none, some whose KV is missing, or some
    that cannot be searched yet."""

    NONE = "none"
    LACK_KV = "lack_kv"
    UNREAD = "unread"


def next_waiting(session: Session, moment: datetime, kinds: Kinds) -> tuple[str, Status] | None:
    """(id, status) of the document whose turn it is, of the first kind of which any waits. On PostgreSQL its row is
    locked, and rows that are locked are passed over."""
    for kind in kinds:
        for tenant_id in session.scalars(tenants_by_turn(moment, kind)).all():
            for status in kind:
                by_use = (most_used_waiting(tenant_id, status, moment),) if kind == LACKS_KV else ()
                mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.status == status, waiting(moment))
                oldest = select(DocumentRow.id).where(*mine).order_by(DocumentRow.created_at).limit(1)
                for turn in (*by_use, oldest):
                    locked = turn.with_for_update(of=DocumentRow, skip_locked=True)
                    if (document_id := session.scalar(locked)) is not None:
                        return document_id, status
    return None


def others_wait(session: Session, tenant_id: str, status: Status, moment: datetime) -> Others:
    """Documents that come before more of this tenant's document with that status: those of the other kind, of its kind
    those of other tenants, and those whose KV answers lacked."""
    for kind, answer in ((BEGUN_FIRST, Others.UNREAD), (LACKS_KV, Others.LACK_KV)):
        tenants = session.scalars(tenants_by_turn(moment, kind).limit(2)).all()
        if any(status not in kind or waiting_id != tenant_id for waiting_id in tenants):
            return answer
    if status in LACKS_KV and session.scalar(most_used_waiting(tenant_id, status, moment)) is not None:
        return Others.LACK_KV
    return Others.NONE


def tenants_by_turn(moment: datetime, kind: Sequence[Status]) -> Select[str]:
    """Ids of the tenants that have waiting documents of a kind, first the one that was served least recently."""
    has_some = exists().where(DocumentRow.tenant_id == TenantRow.id, DocumentRow.status.in_(kind), waiting(moment))
    served_at = TenantRow.kv_served_at if kind == LACKS_KV else TenantRow.served_at
    return select(TenantRow.id).where(has_some).order_by(served_at.asc().nulls_first(), TenantRow.id)


def most_used_waiting(tenant_id: str, status: Status, moment: datetime) -> Select[str]:
    """The id of a tenant's document with this status that waits and has the chunk that answers used most, of late,
    without KV."""
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.status == status)
    waits = select(DocumentRow.id).join(ChunkRow, USED_WITHOUT_KV).where(*mine, waiting(moment))
    return waits.order_by(ChunkRow.kv_warm_until.desc()).limit(1)


def served(document_id: str, status: Status, moment: datetime) -> Update:
    """The tenant of a document with this status has had its turn, of that kind."""
    owner = select(DocumentRow.tenant_id).where(DocumentRow.id == document_id).scalar_subquery()
    column = TenantRow.kv_served_at if status in LACKS_KV else TenantRow.served_at
    return update(TenantRow).where(TenantRow.id == owner).values({column: moment})


def new_job(tenant_id: str, document_id: str, kind: str) -> JobRow:
    """The record of work that is queued, with the request that it comes from."""
    return JobRow(tenant_id=tenant_id, document_id=document_id, kind=kind, cause=cause())


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


def jobs_of_tenant(tenant_id: str, status: JobStatus | None) -> Select[JobRow, DocumentRow, str]:
    """(job, its document, the name of the document's collection) of a tenant's jobs, or of those with one status."""
    statement = (
        select(JobRow, DocumentRow, CollectionRow.name)
        .join(DocumentRow, DocumentRow.id == JobRow.document_id)
        .join(CollectionRow, CollectionRow.id == DocumentRow.collection_id)
        .where(JobRow.tenant_id == tenant_id)
    )
    return statement if status is None else statement.where(JobRow.status == status)


def count_jobs() -> Select[JobStatus, int]:
    """(status, jobs) of all tenants."""
    return select(JobRow.status, func.count()).group_by(JobRow.status)


def waiting_jobs() -> Select[int, datetime | None]:
    """(jobs, when the oldest was queued). Reads the unfinished documents alone, by their index."""
    waiting = (unfinished(), JobRow.status == JobStatus.QUEUED)
    return (
        select(func.count(), func.min(JobRow.created_at))
        .join_from(DocumentRow, JobRow, JobRow.document_id == DocumentRow.id)
        .where(*waiting)
    )


def forget_jobs(cutoff: datetime, limit: int) -> Delete:
    """Jobs that ended before the cutoff."""
    ended = (JobRow.status.in_((JobStatus.DONE, JobStatus.FAILED)), JobRow.updated_at < cutoff)
    old = select(JobRow.id).where(*ended).order_by(JobRow.updated_at).limit(limit)
    return delete(JobRow).where(JobRow.id.in_(old))


def _open(document_id: str) -> tuple[ColumnElement[bool], ...]:
    return JobRow.document_id == document_id, JobRow.status.in_(OPEN_JOBS)
