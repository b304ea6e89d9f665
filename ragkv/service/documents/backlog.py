"""Ingestion backlog: how many jobs are waiting for a worker, and since when the oldest has waited."""

import threading
import time
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, func, select

from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import DocumentRow, JobRow
from ragkv.service.documents.statements import unfinished

FRESH_S = 5.0


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
                    jobs, oldest = session.execute(_waiting_jobs()).one()
                oldest_s = max((utc_now() - oldest).total_seconds(), 0.0) if oldest else 0.0
                self._counted = time.monotonic(), Waiting(jobs, oldest_s)
            return self._counted[1]


def _waiting_jobs() -> Select[int, datetime | None]:
    """(jobs, when the oldest was queued). Reads the unfinished documents alone, by their index."""
    waiting = (unfinished(), JobRow.status == JobStatus.QUEUED)
    return (
        select(func.count(), func.min(JobRow.created_at))
        .join_from(DocumentRow, JobRow, JobRow.document_id == DocumentRow.id)
        .where(*waiting)
    )
