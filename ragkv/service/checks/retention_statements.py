"""Statements that remove old records: a few rows at a time, oldest first."""

from datetime import datetime

from sqlalchemy import ColumnElement, Delete, Select, delete, exists, func, or_, select
from sqlalchemy.orm import aliased

from ragkv.service.base.lists import one_of
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import ApiKeyRow, JobRow, QuestionRow

_ENDED = (JobStatus.DONE, JobStatus.FAILED)


def forget_questions(cutoff: datetime, limit: int) -> Delete:
    """Questions that were asked before the cutoff."""
    old = select(QuestionRow.id).where(QuestionRow.created_at < cutoff).order_by(QuestionRow.created_at).limit(limit)
    return delete(QuestionRow).where(QuestionRow.id.in_(old))


def forget_questions_about(collection_id: str, limit: int) -> Delete:
    ids = select(QuestionRow.id).where(QuestionRow.collection_id == collection_id).limit(limit)
    return delete(QuestionRow).where(QuestionRow.id.in_(ids))


def forget_jobs(cutoff: datetime, limit: int) -> Delete:
    """Jobs that ended before the cutoff."""
    ended = (JobRow.status.in_(_ENDED), JobRow.updated_at < cutoff)
    old = select(JobRow.id).where(*ended).order_by(JobRow.updated_at).limit(limit)
    return delete(JobRow).where(JobRow.id.in_(old))


def keys_ended_before(moment: datetime, limit: int) -> Select[ApiKeyRow]:
    """API keys that were revoked or expired before the cutoff, but for the newest of all keys and for those that made
    or revoked one that did not end so long ago."""
    other = aliased(ApiKeyRow)
    named = or_(other.created_by == ApiKeyRow.id, other.revoked_by == ApiKeyRow.id)
    newest = select(ApiKeyRow.id).order_by(ApiKeyRow.created_at.desc(), ApiKeyRow.id).limit(1).scalar_subquery()
    by_a_later_one = exists().where(named, ~_ended_before(other, moment))
    ended = _ended_before(ApiKeyRow, moment)
    return select(ApiKeyRow).where(ended, ~by_a_later_one, ApiKeyRow.id != newest).order_by(ApiKeyRow.id).limit(limit)


def forget_keys(key_ids: list[str]) -> Delete:
    return delete(ApiKeyRow).where(one_of(ApiKeyRow.id, key_ids))


def _ended_before(key: type[ApiKeyRow], moment: datetime) -> ColumnElement[bool]:
    """Never null, so that its negation is what it says."""
    return or_(func.coalesce(key.revoked_at < moment, False), func.coalesce(key.expires_at < moment, False))
