"""How far an ingestion has come, for the database and for whoever watches."""

import time
from collections.abc import Callable

from ragkv.db.ingestion import Lease

Progress = Callable[[str, int, int], None]
"""Told (stage, done, total), in tokens. May raise Interrupted."""

WRITE_EVERY_S = 1.0


class Interrupted(Exception):
    """The process is to stop: the document goes back to the queue, and nothing is lost."""


def ignore(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


class Reporter:
    """Writes progress to the document about once a second, and tells the watcher every time."""

    def __init__(self, lease: Lease, watcher: Progress) -> None:
        self._lease = lease
        self._watcher = watcher
        self._written = 0.0

    def stage(self, name: str) -> Callable[[int, int], None]:
        """Reports of one stage. Its first is always written."""
        self._written = 0.0
        return lambda done, total: self._report(name, done, total)

    def _report(self, stage: str, done: int, total: int) -> None:
        self._watcher(stage, done, total)
        if time.monotonic() - self._written >= WRITE_EVERY_S:
            self._lease.report(stage, done, total)
            self._written = time.monotonic()
