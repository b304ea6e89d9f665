"""Heartbeats of workers in Redis: when each last reported, and when its current work last made progress."""

import os
import socket
from dataclasses import dataclass

from ragkv.service.base.redis import Redis, reporting

BEAT_S = 10.0
"""Between two reports of a worker."""
SILENT_AFTER_S = 60.0
"""Silence after which a worker is taken as not running, or as hanging and holding the interpreter."""
STALLED_AFTER_S = 600.0
"""Time without progress in its document after which a worker is taken as hanging."""
FORGOTTEN_AFTER_S = 3600.0
_HASH = "ragkv:workers"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's last report: seconds since it came, and seconds without progress in the document at hand (0: idle)."""

    worker: str
    silent_s: float
    stalled_s: float

    @property
    def is_alive(self) -> bool:
        return self.silent_s < SILENT_AFTER_S

    @property
    def is_working(self) -> bool:
        """Whether documents are being read by it, or would be."""
        return self.is_alive and self.stalled_s < STALLED_AFTER_S


class Heartbeats:
    """Reports of all workers, by Redis' clock: those of the machines may differ. Each method raises Unavailable."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    def beat(self, worker: str, stalled_s: float) -> None:
        """A worker reports. Those that stopped doing so an hour ago are forgotten."""
        with reporting(self._client):
            moment = self._now()
            forgotten = [name for name, at, _ in self._reports() if moment - at > FORGOTTEN_AFTER_S]
            self._client.hset(_HASH, worker, f"{moment:.3f} {stalled_s:.3f}")
            if forgotten:
                self._client.hdel(_HASH, *forgotten)

    def end(self, worker: str) -> None:
        """A worker stops."""
        with reporting(self._client):
            self._client.hdel(_HASH, worker)

    def read(self) -> list[Heartbeat]:
        """The last report of every worker, the latest first."""
        with reporting(self._client):
            moment = self._now()
            heartbeats = [Heartbeat(name, max(moment - at, 0.0), stalled) for name, at, stalled in self._reports()]
        return sorted(heartbeats, key=lambda beat: beat.silent_s)

    def _now(self) -> float:
        seconds, micros = self._client.time()
        return float(seconds + micros / 1e6)

    def _reports(self) -> list[tuple[str, float, float]]:
        """(worker, when it reported, seconds without progress)."""
        reports: dict[bytes, bytes] = self._client.hgetall(_HASH)  # type: ignore[assignment]
        return [(name.decode(), *map(float, report.split())) for name, report in reports.items()]  # type: ignore[misc]


def this_worker() -> str:
    """A name for the worker in this process: its machine and process id."""
    return f"{this_machine()}{os.getpid()}"


def this_machine() -> str:
    """The prefix of the names of workers on this machine."""
    return f"{socket.gethostname()}/"
