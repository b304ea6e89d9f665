"""Periodic maintenance by workers: requeue documents dropped in a crash, evict KV, remove old records."""

import logging
import threading
from collections.abc import Callable
from functools import partial

import msgspec

from ragkv.service.checks.cleaning import clean, collect_garbage, restore_lost_points, restore_points
from ragkv.service.checks.pruning import prune
from ragkv.service.documents.removal import forget_stale_answers, forget_stale_recent_answers
from ragkv.service.documents.requeue import requeue_stuck
from ragkv.service.kv_admin.eviction import make_room
from ragkv.service.kv_admin.rules import keep_hot
from ragkv.service.kv_admin.usage import request_lost_prefixes
from ragkv.service.parts import Parts
from workers.repeating import attempt

log = logging.getLogger(__name__)

NAME = "sweep"
INTERVAL_S = 15.0
GARBAGE_EVERY = round(3600 / INTERVAL_S)
"""Sweeps."""
LOGS_EVERY = round(60 / INTERVAL_S)
REWRITE_TIMEOUT_S = 60.0

Step = Callable[[Parts], object]


def _log(text: str, figures: int | msgspec.Struct) -> None:
    """Log how much a step did, if it did anything."""
    numbers = (figures,) if isinstance(figures, int) else msgspec.structs.astuple(figures)
    if any(numbers):
        log.info(text, *numbers)


def _requeue(parts: Parts) -> None:
    """Requeue unfinished documents that no worker holds."""
    _log("requeued %d unfinished documents", len(requeue_stuck(parts.database, parts.queue)))


def _forget_answers(parts: Parts) -> None:
    if forgotten := forget_stale_answers(parts.database, parts.answer_ring):
        log.info("removed cached answers of %d collections that changed", forgotten)
    if stale := forget_stale_recent_answers(parts.recent_answers, parts.source.chunks):
        log.info("removed %d recent answers about text that is gone", stale)
    if (forgotten or stale) and parts.append_log is not None:
        parts.append_log.note_deletion()


EACH_TIME: tuple[Step, ...] = (
    # Before the requeueing, which gives the documents in use to a worker.
    lambda parts: _log(
        "%d documents have chunks that are used often enough to keep their KV",
        keep_hot(parts.database, parts.settings),
    ),
    _requeue,
    lambda parts: _log(
        "evicted %d KV files of %d bytes to stay within the limits on KV",
        make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters),
    ),
    # After the eviction, whose KV may leave a disk full of KV without copies.
    lambda parts: parts.kv_disk.make_room(0) if parts.kv_remote is not None else None,
)
HOURLY: tuple[Step, ...] = (
    _forget_answers,
    lambda parts: _log("removed %d unused KV files of %d bytes", collect_garbage(parts)),
    lambda parts: _log(
        "the KV of %d tenants' prefixes is lost, and will be computed again",
        request_lost_prefixes(parts.database, parts.kv_store, parts.kv_remote, parts.keys_of),
    ),
    lambda parts: _log("wrote %d vectors that the Qdrant server lacked", restore_points(parts)),
    lambda parts: _log(
        "removed %d unfinished uploads, %d files that no document names, points of %d deleted documents, "
        "%d attachments of deleted mails",
        clean(parts.database, parts.removal, parts.server_index),
    ),
    lambda parts: _log(
        "removed records: %d questions, %d jobs, %d API keys, %d deliveries of webhooks, %d audit events, texts of %d evaluated questions and %d others",
        prune(parts.settings.question_retention_days, parts.database, parts.settings.audit_retention_days),
    ),
)
EACH_MINUTE: tuple[Step, ...] = (
    lambda parts: parts.database.empty_write_ahead_log(),
    lambda parts: _log("wrote %d vectors to the Qdrant server, which had lost all", restore_lost_points(parts)),
    # The embedded Redis' log, after answers are forgotten.
    lambda parts: parts.append_log is not None and parts.append_log.rewrite(REWRITE_TIMEOUT_S),
)


class Sweeper(threading.Thread):
    """A thread that sweeps periodically. Several workers may sweep at once."""

    def __init__(self, parts: Parts, interval_s: float = INTERVAL_S) -> None:
        super().__init__(name=NAME, daemon=True)
        self._parts = parts
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._sweeps = 0

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        """Requeue at once the messages that a killed worker had taken: this worker may be killed before its first
        sweep."""
        attempt(partial(_requeue, self._parts), NAME)
        while not self._stopping.wait(self._interval_s):
            self.sweep()

    def sweep(self) -> None:
        """Sweep once. A step whose database, Redis or Qdrant is unavailable is retried by the next sweep."""
        steps = EACH_TIME
        if self._sweeps % GARBAGE_EVERY == 0:
            steps += HOURLY
        if self._sweeps % LOGS_EVERY == 0:
            steps += EACH_MINUTE
        self._sweeps += 1
        for step in steps:
            attempt(partial(step, self._parts), NAME)
