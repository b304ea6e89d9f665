"""Threads beside ingestion that repeat a step even if it fails: uploads of KV, syncs of data sources, webhooks."""

import logging
import threading
from collections.abc import Callable

from ragkv.errors import RagKVError
from ragkv.service.data_sources.syncing import SyncTally, sync_next
from ragkv.service.kv_admin.upload import Uploader
from ragkv.service.parts import Parts
from ragkv.service.webhooks.delivery import Courier

SYNC_EVERY_S = 3.0
SYNC_THREADS = 2
"""A data source with very many files leaves a thread to those of others."""
DELIVER_EVERY_S = 2.0
UPLOAD_EVERY_S = 15.0
UPLOAD_RETRY_S = 300.0
"""The longest wait while nothing can be uploaded."""

log = logging.getLogger(__name__)


class Repeating:
    """Threads that repeat a step until they are stopped. Several workers may do so at once."""

    def __init__(
        self, name: str, step: Callable[[threading.Event], bool], interval_s: float, num_threads: int = 1
    ) -> None:
        """step: see `repeat`; it gets the event that stops the threads."""
        self._name = name
        self._step = step
        self._interval_s = interval_s
        self._num_threads = num_threads
        self._stop = threading.Event()

    def start(self) -> None:
        for number in range(self._num_threads):
            threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        repeat(lambda: self._step(self._stop), self._stop, self._interval_s, self._name)


def syncing(parts: Parts, interval_s: float = SYNC_EVERY_S) -> Repeating:
    """Threads that sync the data sources that are due: a slow disk or object store delays no document. When the worker
    stops, a sync under way ends at its next file, and another worker goes on with it."""

    def sync(stop: threading.Event) -> bool:
        def goes_on(tally: SyncTally) -> bool:
            return not stop.is_set()

        return sync_next(parts.intake, parts.removal, parts.worker_counters, goes_on) is not None

    return Repeating("data sources", sync, interval_s, SYNC_THREADS)


def delivering(parts: Parts, *, silent: bool) -> Repeating:
    """A thread that sends the messages of webhooks that are due, to receivers that left one without a response or to
    the others: a slow receiver delays no document."""

    def deliver(stop: threading.Event) -> bool:
        return Courier(parts.database, parts.settings.trusted_webhook_hosts).deliver_due(silent=silent) > 0

    return Repeating("webhooks", deliver, DELIVER_EVERY_S)


def repeat(step: Callable[[], bool], stop: threading.Event, interval_s: float, name: str) -> None:
    """Repeat a step until `stop` is set: at once while it had something to do, else, and after an error, which is
    logged, after the interval."""
    wait_s = 0.0
    while not stop.wait(wait_s):
        wait_s = 0.0 if attempt(step, name) else interval_s


def attempt(step: Callable[[], object], name: str) -> bool:
    """Whether a step had something to do. An error is logged, a bug too: it must not end the thread."""
    try:
        return bool(step())
    except (RagKVError, OSError) as error:
        log.warning("%s: %s", name, error)
    except Exception:
        log.exception(name)
    return False


class Uploads:
    """A thread that uploads KV that is due: at once when KV was kept, and periodically. None without an object store. A
    slow object store delays nothing else."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._uploader = Uploader(parts)
        self._due = threading.Event()
        self._stop = threading.Event()

    def start(self) -> None:
        if self._parts.kv_remote is not None:
            threading.Thread(target=self._run, name="uploads", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        self._due.set()

    def kept(self) -> None:
        """KV was kept on this disk."""
        self._due.set()

    def _run(self) -> None:
        """While nothing can be uploaded the waits grow, whatever is kept meanwhile."""
        wait_s = UPLOAD_EVERY_S
        while not self._stop.is_set():
            if attempt(self._upload, "uploads"):
                wait_s = UPLOAD_EVERY_S
                self._due.wait(wait_s)
                self._due.clear()
            else:
                self._stop.wait(wait_s)
                wait_s = min(2 * wait_s, UPLOAD_RETRY_S)

    def _upload(self) -> bool:
        """Whether the object store takes uploads."""
        done = self._uploader.upload_due()
        self._parts.worker_counters.uploads(*done)
        if done.files:
            log.info("uploaded %d KV files of %d bytes", done.files, done.bytes)
        return bool(done.files) or not done.failed
