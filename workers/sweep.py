"""Periodic maintenance by workers: requeue documents dropped in a crash, evict KV, remove old records."""

import logging
import threading

from ragkv.service.checks.cleaning import clean, collect_garbage
from ragkv.service.checks.pruning import prune
from ragkv.service.documents.removal import forget_stale_answers, forget_stale_recent_answers
from ragkv.service.documents.requeue import requeue_stuck
from ragkv.service.kv_admin.eviction import NOTHING, make_room
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


class Sweeper:
    """A thread that sweeps periodically. Several workers may sweep at once."""

    def __init__(self, parts: Parts, interval_s: float = INTERVAL_S) -> None:
        self._parts = parts
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._sweeps = 0

    def start(self) -> None:
        threading.Thread(target=self._run, name=NAME, daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        """Requeue at once the messages that a killed worker had taken: this worker may be killed before its first
        sweep."""
        attempt(self._requeue, NAME)
        while not self._stop.wait(self._interval_s):
            self.sweep()

    def sweep(self) -> None:
        """Sweep once. A step whose database, Redis or Qdrant is unavailable is retried by the next sweep."""
        steps = [self._keep_hot, self._requeue, self._evict, self._make_room_on_disk]
        if self._sweeps % GARBAGE_EVERY == 0:
            steps += [
                self._forget_answers,
                self._collect_garbage,
                self._request_lost_prefixes,
                self._clean,
                self._prune,
            ]
        if self._sweeps % LOGS_EVERY == 0:
            steps += [self._parts.database.empty_write_ahead_log, self._rewrite_append_log]
        self._sweeps += 1
        for step in steps:
            attempt(step, NAME)

    def _keep_hot(self) -> None:
        """Mark documents in use; runs before the requeueing, which gives them to a worker."""
        if hot := keep_hot(self._parts.database, self._parts.settings):
            log.info("%d documents have chunks that are used often enough to keep their KV", hot)

    def _requeue(self) -> None:
        """Requeue unfinished documents that no worker holds."""
        if stuck := requeue_stuck(self._parts.database, self._parts.queue):
            log.info("requeued %d unfinished documents", len(stuck))

    def _evict(self) -> None:
        if (
            freed := make_room(
                self._parts.database, self._parts.settings, self._parts.kv_store, self._parts.worker_counters
            )
        ) != NOTHING:
            log.info("evicted %d KV files of %d bytes to stay within the limits on KV", freed.files, freed.bytes)

    def _make_room_on_disk(self) -> None:
        """Make room on the disk; runs after the eviction, whose KV may leave a disk full of KV without copies."""
        if self._parts.kv_remote is not None:
            self._parts.kv_disk.make_room(0)

    def _forget_answers(self) -> None:
        if forgotten := forget_stale_answers(self._parts.database, self._parts.answer_ring):
            log.info("removed cached answers of %d collections that changed", forgotten)
        if stale := forget_stale_recent_answers(self._parts.recent_answers, self._parts.source.chunks):
            log.info("removed %d recent answers about text that is gone", stale)
        if (forgotten or stale) and self._parts.append_log is not None:
            self._parts.append_log.note_deletion()

    def _rewrite_append_log(self) -> None:
        """Rewrite the embedded Redis' log; runs after the answers are forgotten."""
        if self._parts.append_log is not None:
            self._parts.append_log.rewrite(REWRITE_TIMEOUT_S)

    def _collect_garbage(self) -> None:
        if (freed := collect_garbage(self._parts)) != NOTHING:
            log.info("removed %d unused KV files of %d bytes", freed.files, freed.bytes)

    def _request_lost_prefixes(self) -> None:
        if requested := request_lost_prefixes(
            self._parts.database, self._parts.kv_store, self._parts.kv_remote, self._parts.keys_of
        ):
            log.info("the KV of %d tenants' prefixes is lost, and will be computed again", requested)

    def _clean(self) -> None:
        if removed := clean(self._parts.database, self._parts.removal, self._parts.server_index):
            log.info(
                "removed %d unfinished uploads, %d files that no document names, points of %d deleted documents, "
                "%d attachments of deleted mails",
                removed.uploads, removed.files, removed.documents, removed.attachments,
            )  # fmt: skip

    def _prune(self) -> None:
        settings = self._parts.settings
        if pruned := prune(settings.question_retention_days, self._parts.database, settings.audit_retention_days):
            log.info(
                "removed records: %d questions, %d jobs, %d API keys, %d deliveries of webhooks, %d audit events, texts of %d evaluated questions and %d others",
                pruned.questions, pruned.jobs, pruned.keys, pruned.deliveries, pruned.audit_events, pruned.evaluation_texts,
                pruned.question_texts,
            )  # fmt: skip
