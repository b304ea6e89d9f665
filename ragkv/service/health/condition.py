"""Condition of the components that a service depends on, in words that may be shown to any client.

Every function returns OK or a sentence about the problem. Messages of drivers name hosts and users: they go to the log.
"""

import logging
import shutil
from collections.abc import Callable

from ragkv.errors import OutOfSpace, RagKVError
from ragkv.files_io import check_room
from ragkv.service.base.redis import check_takes, ping
from ragkv.service.parts import Parts
from ragkv.settings import Settings

log = logging.getLogger(__name__)

OK = "ok"
AWAY = "cannot be reached: see the service's log"
OLD_BACKLOG_S = 1800.0
_UNITS = (("h", 3600), ("min", 60), ("s", 1))


def database(parts: Parts) -> str:
    return _answering("the database", parts.database.ping)


def redis(parts: Parts) -> str:
    return _answering("Redis", lambda: ping(parts.redis))


def index(parts: Parts) -> str:
    """The Qdrant server; without one the index is in this process."""
    if parts.settings.qdrant_url is None:
        return OK

    def ping_index() -> None:
        assert parts.server_index is not None, "there is a URL"
        parts.server_index.ping()

    return _answering("Qdrant", ping_index)


def worker(parts: Parts) -> str:
    """Whether at least one worker reports and moves on."""
    try:
        beats = parts.heartbeats.read()
    except RagKVError:
        return "not known while Redis cannot be reached"
    if any(beat.is_working for beat in beats):
        return OK
    if not beats:
        return "no worker runs: uploads wait until one does"
    if not beats[0].is_alive:
        return f"no worker has reported for {_duration(beats[0].silent_s)}: uploads wait until one does"
    stalled_s = min(beat.stalled_s for beat in beats if beat.is_alive)
    return f"no progress on the current document for {_duration(stalled_s)}: see the worker's log, or restart it"


def queue(parts: Parts) -> str:
    """Whether documents are read within half an hour of their upload, and workers are woken for them."""
    try:
        waiting = parts.backlog.read()
    except RagKVError:
        return "not known while the database cannot be reached"
    if waiting.oldest_s >= OLD_BACKLOG_S:
        return f"{waiting.jobs:,} documents wait to be read, the oldest for {_duration(waiting.oldest_s)}"
    try:
        check_takes(parts.redis)
    except RagKVError:
        return "Redis is full or cannot be reached: uploads wait until it has room"
    return OK


def disk(parts: Parts) -> str:
    """Whether there is room for uploads and KV, by the rule that refuses them where there is none."""
    settings = parts.settings
    try:
        for folder in (settings.files_dir, settings.kv_dir):
            check_room(folder, settings.min_free_bytes)
    except OutOfSpace as full:
        return str(full)
    except OSError as error:
        log.warning("the data folder: %s", error)
        return "the data folder cannot be read: see the service's log"
    return OK


def free_bytes(settings: Settings) -> int | None:
    """Free bytes where the data folder lies; None if that cannot be known."""
    try:
        return shutil.disk_usage(settings.data_dir).free
    except OSError as error:
        log.warning("the data folder: %s", error)
        return None


def _answering(name: str, ask: Callable[[], object]) -> str:
    try:
        ask()
    except RagKVError as error:
        log.warning("%s cannot be used: %s", name, error)
        return AWAY
    return OK


def _duration(seconds: float) -> str:
    """The duration in the largest unit of which there are at least two."""
    count, unit = next((seconds / size, unit) for unit, size in _UNITS if seconds >= 2 * size or size == 1)
    return f"{count:.0f} {unit}"
