"""Checks of rows against each other: leases, jobs, counters."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ragkv.ids import batched
from ragkv.service.base.database import Database
from ragkv.service.base.database_clock import now_of
from ragkv.service.checks.check import ConsistencyCheck, Grace, execute_all
from ragkv.service.checks.consistency_statements import (
    close_jobs,
    jobs_of_finished,
    jobs_without_worker,
    miscounted_documents,
    queue_jobs,
    release,
    stale_leases,
)
from ragkv.service.documents.lease import LEASE
from ragkv.service.documents.statements import start_over

if TYPE_CHECKING:
    from sqlalchemy import Select

CLOCK_STEP = LEASE * 2
"""A lease that ends later than this was taken by a clock that ran ahead."""


def _found(statement: "Select[str]", database: Database) -> Sequence[str]:
    with database.reading() as session:
        return session.scalars(statement).all()


def _now(database: Database) -> datetime:
    """By the database's clock, as leases are."""
    with database.reading() as session:
        return now_of(session)


def _lease_ends(grace: Grace, database: Database) -> tuple[datetime, datetime]:
    """The moments between which the lease of a worker that is there ends."""
    moment = _now(database)
    return moment - grace.rows, moment + CLOCK_STEP


def _release(document_ids: Sequence[str], grace: Grace, database: Database) -> None:
    ends = _lease_ends(grace, database)
    execute_all((release(batch, *ends) for batch in batched(document_ids)), database)


def _queue(job_ids: Sequence[str], grace: Grace, database: Database) -> None:
    lapsed_before = _now(database) - grace.rows
    execute_all((queue_jobs(batch, lapsed_before) for batch in batched(job_ids)), database)


ROW_CHECKS = (
    ConsistencyCheck(
        "stale_leases", "documents held by a worker that is gone, or too long because a clock ran ahead", "released",
        lambda grace, parts: _found(stale_leases(*_lease_ends(grace, parts.database)), parts.database), lambda names, grace, parts: _release(names, grace, parts.database),
    ),
    ConsistencyCheck(
        "miscounted_documents", "documents whose recorded number of chunks is wrong", "read again",
        lambda grace, parts: _found(miscounted_documents(), parts.database),
        lambda ids, grace, parts: execute_all(map(start_over, ids), parts.database),
    ),
    ConsistencyCheck(
        "unclosed_jobs", "open jobs of documents that are ready or failed", "closed",
        lambda grace, parts: _found(jobs_of_finished(_now(parts.database) - grace.rows), parts.database),
        lambda ids, grace, parts: execute_all((change for batch in batched(ids) for change in close_jobs(batch)), parts.database),
    ),
    ConsistencyCheck(
        "unheld_jobs", "running jobs of documents that no worker holds", "queued",
        lambda grace, parts: _found(jobs_without_worker(_now(parts.database) - grace.rows), parts.database), lambda names, grace, parts: _queue(names, grace, parts.database),
    ),
)  # fmt: skip
