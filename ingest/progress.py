"""Progress of an ingestion, written to the database and reported to a watcher."""

import time
from collections.abc import Callable

from ragkv.service.documents.lease import Lease

StageProgress = Callable[[str, int, int], None]
"""Told (stage, done, total), in the stage's unit. May raise Interrupted."""

StageReport = Callable[[int, int], None]
"""Told (done, total)."""

WRITE_EVERY_S = 1.0
READING_PAGES = "ocr"
"""The stage whose progress is counted in pages; that of the others is in tokens."""


class Interrupted(Exception):
    """The process is stopping: the document returns to the queue without a counted attempt."""


def ignore(stage: str, done: int, total: int) -> None:
    """Watcher that ignores every report."""


class Reporter:
    """Writes progress to the document about once a second, and reports every step to the watcher."""

    def __init__(self, lease: Lease, watcher: StageProgress) -> None:
        self._lease = lease
        self._watcher = watcher
        self._written = 0.0

    def stage(self, name: str) -> StageReport:
        """Reports of one stage. Its first is always written."""
        self._written = 0.0

        def report(done: int, total: int) -> None:
            self._watcher(name, done, total)
            if time.monotonic() - self._written >= WRITE_EVERY_S:
                self._lease.report(name, done, total)
                self._written = time.monotonic()

        return report
