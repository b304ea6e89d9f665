"""Rows that disagree with each other: leases, jobs, counters."""

from collections.abc import Sequence
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
from ragkv.upkeep.check import Check, execute_all

if TYPE_CHECKING:
    from sqlalchemy import Select

CLOCK_STEP = LEASE * 2
"""A lease that ends later than this was taken by a clock that ran ahead."""


def _found(statement: "Select[str]", database: Database) -> Sequence[str]:
    with database.reading() as session:
        return session.scalars(statement).all()


ROW_CHECKS = (
    Check(
        "stale_leases", "documents held by a worker that is gone, or by a clock that ran ahead", "released",
        lambda grace, parts: _found(stale_leases(grace.rows_before, utc_now() + CLOCK_STEP), parts.database),
        lambda ids, grace, parts: execute_all((release(some, grace.rows_before, utc_now() + CLOCK_STEP) for some in batched(ids)), parts.database),
    ),
    Check(
        "miscounted_documents", "documents with another number of chunks than they say", "read again",
        lambda grace, parts: _found(miscounted_documents(), parts.database),
        lambda ids, grace, parts: execute_all(map(start_over, ids), parts.database),
    ),
    Check(
        "unclosed_jobs", "open jobs of documents that are ready or failed", "closed",
        lambda grace, parts: _found(jobs_of_finished(grace.rows_before), parts.database),
        lambda ids, grace, parts: execute_all((change for some in batched(ids) for change in close_jobs(some)), parts.database),
    ),
    Check(
        "unheld_jobs", "running jobs of documents that no worker holds", "queued",
        lambda grace, parts: _found(jobs_without_worker(grace.rows_before), parts.database),
        lambda ids, grace, parts: execute_all((queue_jobs(some, grace.rows_before) for some in batched(ids)), parts.database),
    ),
)  # fmt: skip
