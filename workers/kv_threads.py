"""Threads in which a worker's documents get their KV: while the engine computes that of one document, the next one's
chunks are on their way, so that the engine never waits for the worker."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ingest.parts import IngestParts

AT_ONCE = 4
"""An engine that answers too needs several of its steps, of some tenths of a second, for each."""


class KVThreads:
    """One thread starts work, these do it. Each has its own IngestParts, and announces its own batches."""

    def __init__(self, ingest: IngestParts) -> None:
        self._idle = [replace(ingest) for _ in range(AT_ONCE)]
        self._threads = ThreadPoolExecutor(AT_ONCE, "kv")
        self._changed = threading.Condition()

    def is_one_idle(self, wait_s: float = 0.0) -> bool:
        """Whether work can be started, now or within some seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._idle), wait_s)

    def start(self, work: Callable[[IngestParts], None]) -> None:
        """Have one that is idle do the work, which raises nothing."""
        self._threads.submit(self._do, work, self._idle.pop())

    def close(self) -> None:
        """Wait for all that was started, and end the threads."""
        self._threads.shutdown()

    def _do(self, work: Callable[[IngestParts], None], ingest: IngestParts) -> None:
        try:
            work(ingest)
        finally:
            with self._changed:
                self._idle.append(ingest)
                self._changed.notify_all()
