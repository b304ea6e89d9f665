"""The worker's heartbeat: a thread that reports that the process is alive, and the time since its documents last
made progress."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ragkv.errors import Unavailable
from ragkv.service.observe.heartbeats import BEAT_S, Heartbeats, this_worker

log = logging.getLogger(__name__)


class Pulse:
    """Reports every `interval_s`. The next report makes up for one that fails."""

    def __init__(self, heartbeats: Heartbeats, interval_s: float = BEAT_S) -> None:
        self._heartbeats = heartbeats
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._moved_at: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Remove this worker from the list of live ones."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._interval_s)
        try:
            self._heartbeats.end(this_worker())
        except Unavailable as error:
            log.debug("no last heartbeat: %s", error)

    @contextmanager
    def working(self) -> Iterator[None]:
        """While the block ingests a document in this thread, report the time since its last progress."""
        self.progressed()
        try:
            yield
        finally:
            del self._moved_at[threading.get_ident()]

    def progressed(self) -> None:
        """Note progress of this thread's document."""
        self._moved_at[threading.get_ident()] = time.monotonic()

    def beat(self) -> None:
        """Report the document that has made none for the longest time."""
        now_s = time.monotonic()
        try:
            self._heartbeats.beat(this_worker(), now_s - min((now_s, *self._moved_at.values())))
        except Unavailable as error:
            log.warning("no heartbeat: %s", error)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.beat()
            self._stop.wait(self._interval_s)
