"""Statements that find rows that disagree with each other, and statements that repair them."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, Update, and_, exists, func, or_, select, update

from ragkv.service.base.database import RELEASED, is_free
from ragkv.service.base.lists import one_of
from ragkv.service.base.status import FINISHED, OPEN_JOBS, JobStatus, Status
from ragkv.service.base.tables import ChunkRow, DocumentRow, FileRow, JobRow
from ragkv.service.documents.job_statements import open_jobs
from ragkv.service.documents.statements import NOT_REPLACED, unfinished
from ragkv.service.kv_admin.entry_statements import HAS_KV


def lost_documents(tenant_id: str, sha256: str) -> Select[str]:
    """Documents made of a file, those that failed aside."""
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.sha256 == sha256)
    return select(DocumentRow.id).where(*mine, DocumentRow.status != Status.FAILED)


def lost_earlier_files(tenant_id: str, sha256: str) -> Select[str]:
    """Documents whose text is of an earlier file that is gone."""
    return select(DocumentRow.id).where(DocumentRow.tenant_id == tenant_id, DocumentRow.earlier_sha256 == sha256)


def forget_earlier_files(document_ids: Sequence[str]) -> Update:
    """Their texts stay, and stay outdated."""
    return update(DocumentRow).where(one_of(DocumentRow.id, document_ids)).values(NOT_REPLACED | {"is_replaced": True})


def lost_uploads(tenant_id: str, sha256: str) -> Select[str]:
    return select(FileRow.id).where(FileRow.tenant_id == tenant_id, FileRow.sha256 == sha256)


def fail_document(document_id: str, reason: str) -> tuple[Update, Update]:
    """Mark a document and its jobs as failed. A worker that holds the document loses it."""
    values = {"status": Status.FAILED, "error": reason, "stage": "", **RELEASED}
    failed = update(DocumentRow).where(DocumentRow.id == document_id).values(values)
    return failed, open_jobs(document_id, status=JobStatus.FAILED, error=reason)


def ready_without_kv() -> Select[str]:
    """Documents that say they are ready, and have a chunk without KV."""
    bare = exists().where(ChunkRow.document_id == DocumentRow.id, ~HAS_KV)
    return select(DocumentRow.id).where(DocumentRow.status == Status.READY, bare)


def miscounted_documents() -> Select[str]:
    """Documents that say they have another number of chunks than there are."""
    chunks = select(func.count()).where(ChunkRow.document_id == DocumentRow.id).scalar_subquery()
    return select(DocumentRow.id).where(DocumentRow.num_chunks != chunks)


def stale_leases(lapsed_before: datetime, no_later_than: datetime) -> Select[str]:
    """Documents whose lease lapsed long ago, lasts longer than any lease does, or outlived the work."""
    return select(DocumentRow.id).where(_is_stale(lapsed_before, no_later_than))


def release(document_ids: Sequence[str], lapsed_before: datetime, no_later_than: datetime) -> Update:
    """Release those of the documents whose lease is still stale."""
    stale = (one_of(DocumentRow.id, document_ids), _is_stale(lapsed_before, no_later_than))
    return update(DocumentRow).where(*stale).values(**RELEASED)


def jobs_of_finished(cutoff: datetime) -> Select[str]:
    """Open jobs of documents that have been ready or failed since before the cutoff."""
    finished = (DocumentRow.status.in_(FINISHED), DocumentRow.updated_at < cutoff)
    return _jobs_with_documents().where(JobRow.status.in_(OPEN_JOBS), *finished)


def close_jobs(job_ids: Sequence[str]) -> tuple[Update, Update]:
    """Jobs end as their documents did."""
    ended = {Status.READY: JobStatus.DONE, Status.FAILED: JobStatus.FAILED}
    done, failed = (_move_jobs(job_ids, DocumentRow.status == status, to) for status, to in ended.items())
    return done, failed


def jobs_without_worker(lapsed_before: datetime) -> Select[str]:
    """Jobs marked as running whose unfinished document has no lease."""
    return _jobs_with_documents().where(
        JobRow.status == JobStatus.RUNNING, unfinished(), is_free(DocumentRow.lease_until, lapsed_before)
    )


def queue_jobs(job_ids: Sequence[str], lapsed_before: datetime) -> Update:
    """Queue those of the jobs again that no worker runs still."""
    return _move_jobs(job_ids, and_(unfinished(), is_free(DocumentRow.lease_until, lapsed_before)), JobStatus.QUEUED)


def _is_stale(lapsed_before: datetime, no_later_than: datetime) -> ColumnElement[bool]:
    outlived = and_(DocumentRow.lease_owner.is_not(None), DocumentRow.status.in_(FINISHED))
    return or_(DocumentRow.lease_until < lapsed_before, DocumentRow.lease_until > no_later_than, outlived)


def _jobs_with_documents() -> Select[str]:
    return select(JobRow.id).join(DocumentRow, DocumentRow.id == JobRow.document_id)


def _move_jobs(job_ids: Sequence[str], documents: ColumnElement[bool], to: JobStatus) -> Update:
    held = select(DocumentRow.id).where(documents)
    return update(JobRow).where(one_of(JobRow.id, job_ids), JobRow.document_id.in_(held)).values(status=to)
