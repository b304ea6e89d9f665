"""Removal of old records: questions, finished jobs and webhook deliveries, ended API keys, audit events; and of
texts in evaluations, whose figures stay."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import msgspec

from ragkv.ids import BATCH
from ragkv.service.audit.statements import forget_audit, forget_deletions, note_deletions
from ragkv.service.base.database import Change, Database, now_of
from ragkv.service.base.long_work import in_batches
from ragkv.service.base.tables import ApiKeyRow
from ragkv.service.documents.job_statements import forget_jobs
from ragkv.service.evaluations.statements import forget_answers_compared, forget_given
from ragkv.service.keys.statements import forget_keys, keys_ended_before
from ragkv.service.questions.statements import forget_questions, forget_texts, tenants_with_log_days
from ragkv.service.webhooks.statements import forget_deliveries

log = logging.getLogger(__name__)

JOBS_KEPT = timedelta(days=30)
"""Longer than any window of the statistics, which count failed jobs."""
DELIVERIES_KEPT = timedelta(days=30)
KEYS_KEPT = timedelta(days=365)
DELETIONS_KEPT = timedelta(days=3 * 365)
"""A restore of an older backup may bring back what was deleted."""


class Pruned(msgspec.Struct, frozen=True):
    """Numbers of removed records."""

    questions: int
    jobs: int
    keys: int
    deliveries: int = 0
    audit_events: int = 0
    evaluation_texts: int = 0
    question_texts: int = 0

    def __bool__(self) -> bool:
        return any(msgspec.structs.astuple(self))


def prune(question_retention_days: int, database: Database, audit_retention_days: int = 0) -> Pruned:
    """Remove records beyond their retention; questions and audit events unless it is 0 days, and texts of questions
    that their tenant keeps no longer. Several processes may do it at once.

    By the database's clock: a worker's that runs ahead removes nothing early.
    """
    with database.reading() as session:
        moment = now_of(session)
        log_days = session.execute(tenants_with_log_days()).all()
    _delete(lambda: forget_deletions(moment - DELETIONS_KEPT, BATCH), database)
    audited_before = moment - timedelta(days=audit_retention_days)
    asked_before = moment - timedelta(days=question_retention_days)
    question_texts = sum(
        _delete(partial(forget_texts, tenant_id, moment - timedelta(days=days), BATCH), database)
        for tenant_id, days in log_days
        if days is not None
    )
    return Pruned(
        _delete(lambda: forget_questions(asked_before, BATCH), database) if question_retention_days else 0,
        _delete(lambda: forget_jobs(moment - JOBS_KEPT, BATCH), database),
        in_batches(lambda: _prune_keys(moment - KEYS_KEPT, database)),
        _delete(lambda: forget_deliveries(moment - DELIVERIES_KEPT, BATCH), database),
        _delete(lambda: forget_audit(audited_before, BATCH), database) if audit_retention_days else 0,
        _delete(lambda: forget_answers_compared(BATCH), database)
        + (_delete(lambda: forget_given(asked_before, BATCH), database) if question_retention_days else 0),
        question_texts,
    )


def _delete(statement: Callable[[], Change], database: Database) -> int:
    return in_batches(lambda: database.execute(statement()))


def _prune_keys(before: datetime, database: Database) -> int:
    """A line of the log for each says what its id meant."""
    with database.writing() as session:
        keys = session.scalars(keys_ended_before(before, BATCH)).all()
        session.execute(forget_keys([key.id for key in keys]))
        note_deletions(session, ApiKeyRow, [key.id for key in keys])
    for key in keys:
        log.info("removed API key %s, %r of tenant %s: it ended a year ago", key.id, key.name, key.tenant_id)
    return len(keys)
