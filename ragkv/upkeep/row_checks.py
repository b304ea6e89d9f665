"""Rows that disagree with each other: leases, jobs, counters."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragkv.batched import batched
from ragkv.clock import utc_now
from ragkv.db.consistency import (
    close_jobs,
    jobs_of_finished,
    jobs_without_worker,
    miscounted_documents,
    queue_jobs,
    release,
    stale_leases,
)
from ragkv.db.database import Database
from ragkv.db.documents import start_over
from ragkv.db.ingestion import LEASE
from ragkv.parts import Parts
from ragkv.upkeep.check import Check, Grace, execute_all

if TYPE_CHECKING:
    from sqlalchemy import Select

CLOCK_STEP = LEASE * 2
"""A lease that ends later than this was taken by a clock that ran ahead."""


def stale(grace: Grace, parts: Parts) -> Iterable[str]:
    return _found(stale_leases(grace.rows_before, utc_now() + CLOCK_STEP), parts.database)


def miscounted(grace: Grace, parts: Parts) -> Iterable[str]:
    return _found(miscounted_documents(), parts.database)


def closed_late(grace: Grace, parts: Parts) -> Iterable[str]:
    return _found(jobs_of_finished(grace.rows_before), parts.database)


def without_worker(grace: Grace, parts: Parts) -> Iterable[str]:
    return _found(jobs_without_worker(grace.rows_before), parts.database)


def _found(statement: "Select[str]", database: Database) -> Sequence[str]:
    with database.reading() as session:
        return session.scalars(statement).all()


ROW_CHECKS = (
    Check(
        "stale_leases", "documents held by a worker that is gone, or by a clock that ran ahead", "released", stale,
        lambda ids, grace, parts: execute_all((release(some, grace.rows_before, utc_now() + CLOCK_STEP) for some in batched(ids)), parts.database),
    ),
    Check(
        "miscounted_documents", "documents with another number of chunks than they say", "read again", miscounted,
        lambda ids, grace, parts: execute_all(map(start_over, ids), parts.database),
    ),
    Check(
        "unclosed_jobs", "open jobs of documents that are ready or failed", "closed", closed_late,
        lambda ids, grace, parts: execute_all((change for some in batched(ids) for change in close_jobs(some)), parts.database),
    ),
    Check(
        "unheld_jobs", "running jobs of documents that no worker holds", "queued", without_worker,
        lambda ids, grace, parts: execute_all((queue_jobs(some, grace.rows_before) for some in batched(ids)), parts.database),
    ),
)  # fmt: skip
