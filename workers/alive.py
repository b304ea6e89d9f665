"""The worker's heartbeat: a thread that reports that the process is alive, and the time since its documents last made
progress.

`python -m workers.alive` exits with 0 if a worker on this machine reports and makes progress, or while Redis is away,
otherwise with 1 and the reason: the health check of a worker's container. It imports next to nothing.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from ragkv.errors import RagKVError, Unavailable
from ragkv.service.base.redis import connect
from ragkv.service.observe.heartbeats import BEAT_S, Heartbeats, this_machine, this_worker
from ragkv.settings import Settings

log = logging.getLogger(__name__)


class Pulse(threading.Thread):
    """Reports every `interval_s`. The next report makes up for one that fails."""

    def __init__(self, heartbeats: Heartbeats, interval_s: float = BEAT_S) -> None:
        super().__init__(name="pulse", daemon=True)
        self._heartbeats = heartbeats
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._moved_at: dict[int, float] = {}

    def stop(self) -> None:
        """Remove this worker from the list of live ones."""
        self._stopping.set()
        if self.is_alive():
            self.join(self._interval_s)
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

    def run(self) -> None:
        while not self._stopping.is_set():
            self.beat()
            self._stopping.wait(self._interval_s)


def trouble(settings: Settings) -> str | None:
    """The reason why no worker on this machine is working; None if one is, and while Redis is away: what restarts a
    worker for its health must not do so for that of another."""
    try:
        with closing(connect(settings)) as client:
            here = [beat for beat in Heartbeats(client).read() if beat.worker.startswith(this_machine())]
    except Unavailable as error:
        log.warning("not known whether a worker works: %s", error)
        return None
    except RagKVError as error:
        return str(error)
    return (
        None
        if any(beat.is_working for beat in here)
        else f"no worker here reports and makes progress ({len(here)} known)"
    )


if __name__ == "__main__":
    sys.exit(trouble(Settings.from_env(os.environ)))
