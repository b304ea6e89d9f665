"""Jobs: lists with their status and progress, and the backlog that waits for a worker."""

import threading
import time
from dataclasses import dataclass
from datetime import datetime

import msgspec

from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.page import newest_first, view_from
from ragkv.service.base.status import JobStatus, Status
from ragkv.service.base.tables import JobRow
from ragkv.service.documents.job_statements import JOB_KEYS, count_jobs, jobs_of_tenant, waiting_jobs

FRESH_S = 5.0


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
    rows, following = newest_first(database, jobs_of_tenant(tenant_id, status), JOB_KEYS, limit, cursor)
    jobs = [
        view_from(
            JobView,
            job,
            document_id=document.id,
            document=document.name,
            document_status=document.status,
            collection_id=document.collection_id,
            collection=collection,
            stage=document.stage,
            done=document.progress_done,
            total=document.progress_total,
        )
        for job, document, collection in rows
    ]
    return JobPage(jobs, following)


def jobs_by_status(tenant_id: str, database: Database) -> dict[JobStatus, int]:
    """Numbers of a tenant's jobs by status, 0 included."""
    counts = dict(database.rows(count_jobs().where(JobRow.tenant_id == tenant_id)))
    return {status: counts.get(status, 0) for status in JobStatus}


@dataclass(frozen=True, slots=True)
class Waiting:
    """Queued jobs of all tenants. `oldest_s`: how long the oldest has waited."""

    jobs: int
    oldest_s: float


class Backlog:
    """Counts at most once in FRESH_S seconds: `/readyz` is open to all, and may be read often."""

    def __init__(self, database: Database, fresh_s: float = FRESH_S) -> None:
        self._database = database
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._counted: tuple[float, Waiting] | None = None

    def read(self) -> Waiting:
        """The jobs that wait, counted anew once the last count is stale. Raises Unavailable."""
        with self._lock:
            if self._counted is None or time.monotonic() - self._counted[0] >= self._fresh_s:
                with self._database.reading() as session:
                    jobs, oldest = session.execute(waiting_jobs()).one()
                oldest_s = max((utc_now() - oldest).total_seconds(), 0.0) if oldest else 0.0
                self._counted = time.monotonic(), Waiting(jobs, oldest_s)
            return self._counted[1]
