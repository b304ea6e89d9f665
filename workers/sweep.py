"""Queues again what a crash dropped."""

import logging
import threading

from ragkv.documents import requeue_stuck
from ragkv.errors import RagKVError
from ragkv.parts import Parts

log = logging.getLogger(__name__)

INTERVAL_S = 15.0


class Sweeper:
    """A thread that looks for unfinished documents that nobody holds. Several at once do no harm."""

    def __init__(self, parts: Parts, interval_s: float = INTERVAL_S) -> None:
        self._parts = parts
        self._interval_s = interval_s
        self._stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="sweep", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sweep()

    def sweep(self) -> None:
        """One look. Whatever is away is tried again at the next."""
        try:
            if stuck := requeue_stuck(self._parts):
                log.info("queued %d unfinished documents again", len(stuck))
        except RagKVError as error:
            log.warning("sweep: %s", error)
