"""A worker's turn with one document: progress is reported, the lease is renewed, and the turn ends early if other
documents are waiting."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ragkv.errors import Conflict, Unavailable
from ragkv.service.documents.lease import LEASE, Lease

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


TURN_TOKENS = 16_384
"""Tokens of KV to compute before others may come in between."""

TURN_SECONDS = 10.0
"""Seconds to read pages by OCR before others may come in between."""


class TurnOver(Exception):
    """Other documents are waiting: this one returns to the queue with its progress and without a counted attempt."""


def none_waiting() -> bool:
    """No document is waiting: for callers that ingest a document in one go."""
    return False


class Turn:
    """Work done since other documents were last looked for. TurnOver is raised if others are waiting then."""

    def __init__(self, others_wait: Callable[[], bool]) -> None:
        self._others_wait = others_wait
        self._tokens = 0
        self._reading_since: float | None = None

    def is_over(self) -> bool:
        """Whether others are waiting, asked while pages are read: only once they were read for a while."""
        now_s = time.monotonic()
        if self._reading_since is None:
            self._reading_since = now_s
        if now_s - self._reading_since < TURN_SECONDS:
            return False
        self._reading_since = now_s
        return self._others_wait()

    def made_searchable(self) -> None:
        self._look()

    def computed(self, tokens: int) -> None:
        """Count the tokens of KV that were stored."""
        self._tokens += tokens
        if self._tokens >= TURN_TOKENS:
            self._tokens = 0
            self._look()

    def _look(self) -> None:
        if self._others_wait():
            raise TurnOver


log = logging.getLogger(__name__)

RENEWAL_S = LEASE.total_seconds() / 4


@contextmanager
def renewing(lease: Lease, interval_s: float = RENEWAL_S) -> Iterator[None]:
    """Renew the lease from a thread until the block ends. Renewal stops once the lease is lost; the next write
    notices."""
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(lease, interval_s, stop), name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _renew(lease: Lease, interval_s: float, stop: threading.Event) -> None:
    while not stop.wait(interval_s):
        try:
            lease.renew()
        except Conflict:
            return
        except Unavailable as error:
            log.warning("cannot renew the lease of document %s yet: %s", lease.document_id, error)
