"""A worker's turn with one document: progress is reported, the lease is renewed, and the turn ends early if other
documents are waiting."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ragkv.errors import Conflict, Unavailable
from ragkv.prefill.precompute import BATCH_TOKENS
from ragkv.service.documents.job_statements import Others
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


class Reporter:
    """Writes progress to the document about once a second, and reports every step to the watcher."""

    def __init__(self, lease: Lease, watcher: StageProgress) -> None:
        self._lease = lease
        self._watcher = watcher
        self._written = 0.0

    def stage(self, name: str) -> StageReport:
        """Reports of one stage. Its first and its last are always written."""
        self._written = 0.0

        def report(done: int, total: int) -> None:
            self._watcher(name, done, total)
            if done == total or time.monotonic() - self._written >= WRITE_EVERY_S:
                self._lease.report(name, done, total)
                self._written = time.monotonic()

        return report


LOOK_SECONDS = 2.0
"""Of KV, at least a batch, before a document that cannot be searched yet may come in between: what a turn costs (some
ten milliseconds, and the reading of the document's chunks) stays small beside it."""
READING_SECONDS = 10.0
"""Of reading pages by OCR, likewise."""
TURN_SECONDS = 30.0
"""Before another document's KV may come in between."""
KV_SHARE = 0.25
"""Of a worker's time that KV gets while documents wait that cannot be searched yet."""


class TurnOver(Exception):
    """Other documents are waiting: this one returns to the queue with its progress and without a counted attempt."""


class KVShare:
    """Time that a worker owes to KV, since it read documents: a stream of them delays KV, and does not stop it. Several
    threads may note theirs."""

    def __init__(self) -> None:
        self._owed_s = 0.0
        self._lock = threading.Lock()

    @property
    def is_due(self) -> bool:
        """Whether KV that waits comes next."""
        return self._owed_s >= LOOK_SECONDS

    def earning(self) -> AbstractContextManager[None]:
        """The block reads a document that could not be searched. At most one turn of KV is owed: it may be that none
        waits."""
        return self._owing(KV_SHARE / (1 - KV_SHARE))

    def spending(self) -> AbstractContextManager[None]:
        """The block works on a searchable document."""
        return self._owing(-1.0)

    @contextmanager
    def _owing(self, rate: float) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = (time.monotonic() - began) * rate
            with self._lock:
                self._owed_s = min(max(self._owed_s + seconds, 0.0), LOOK_SECONDS)


FIRST_TOKENS = 1024
"""Of the first batch, which shows how fast the model is, and of the smallest."""
BATCH_SECONDS = 2.0


class BatchSize:
    """The tokens of a batch, by the time that earlier ones took: documents that wait are looked for between batches
    alone, and on a CPU large batches compute no more tokens a second than small ones. One a process."""

    def __init__(self, tokens: int = FIRST_TOKENS) -> None:
        self._tokens = tokens

    def tokens(self) -> int:
        return min(self._tokens, BATCH_TOKENS)

    def adapt(self, tokens: int, seconds: float) -> None:
        """Note a batch of so many tokens that took so long. Batches get twice as large while they take half of the
        time, and half as large when they take twice as long."""
        present = self.tokens()
        expected_s = seconds * present / max(tokens, 1)
        if expected_s > 2 * BATCH_SECONDS and present > FIRST_TOKENS:
            self._tokens = max(present // 2, FIRST_TOKENS)
        elif expected_s < BATCH_SECONDS / 2:
            self._tokens = 2 * present


class Turn:
    """Time since a document's turn began. It is over once others wait that come first. Looking for them reads the
    database."""

    def __init__(self, others_wait: Callable[[], Others]) -> None:
        self._others_wait = others_wait
        self._began = self._looked = time.monotonic()

    def is_over(self) -> bool:
        """Whether the turn is over, asked while pages are read."""
        return self._is_over(READING_SECONDS)

    def made_searchable(self) -> None:
        """Begin with KV, unless others wait: raises TurnOver."""
        if self._others_wait() is not Others.NONE:
            raise TurnOver
        self._began = self._looked = time.monotonic()

    def stored_kv(self) -> None:
        """Look for others between two batches. Raises TurnOver."""
        if self._is_over(LOOK_SECONDS):
            raise TurnOver

    def give_way(self) -> None:
        """No KV can be computed now. Raises TurnOver if documents wait that can be read meanwhile."""
        if self._others_wait() is Others.UNREAD:
            raise TurnOver

    def _is_over(self, unread_after_s: float) -> bool:
        now_s = time.monotonic()
        if now_s - self._began < unread_after_s or now_s - self._looked < LOOK_SECONDS:
            return False
        self._looked = now_s
        waiting = self._others_wait()
        return waiting is Others.UNREAD or (waiting is Others.LACK_KV and now_s - self._began >= TURN_SECONDS)


log = logging.getLogger(__name__)

RENEWAL_S = LEASE.total_seconds() / 4


@contextmanager
def renewing(lease: Lease) -> Iterator[None]:
    """Renew the lease from a thread until the block ends. Renewal stops once the lease is lost; the next write
    notices."""
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(lease, stop), name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _renew(lease: Lease, stop: threading.Event) -> None:
    while not stop.wait(RENEWAL_S):
        try:
            lease.renew()
        except Conflict:
            return
        except Unavailable as error:
            log.warning("cannot renew the lease of document %s yet: %s", lease.document_id, error)
