"""The Celery task, what a worker does at each of its messages, and the threads in which its documents get their KV."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import get_ident

from celery import Celery
from celery.exceptions import Reject

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, lacks_only_kv, take_next, work_on
from ingest.turn import Interrupted
from ragkv.observe import logs, traces
from ragkv.observe.traces import CAUSE_HEADER
from ragkv.service.base.long_work import is_outage, retry_delay_s
from ragkv.service.base.queue import INGEST, QUEUE
from ragkv.service.documents.lease import Lease
from ragkv.service.documents.requeue import enqueue
from workers.alive import Pulse

log = logging.getLogger("ragkv.ingest")

FIRST_PAUSE_S = 1.0
LOOK_S = 0.2
"""Between looks for a document to read, while all threads of KV are busy."""
AT_ONCE = 4
"""Threads of KV. An engine that answers too needs several of its steps, of some tenths of a second, for each."""


class KVThreads:
    """Threads in which documents get their KV: while the engine computes that of one, the next one's chunks are on
    their way, so that the engine never waits for the worker.

    One thread starts work, these do it. Each has its own IngestParts, and announces its own batches.
    """

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
        ingest = self._idle.pop()

        def work_and_be_idle() -> None:
            try:
                work(ingest)
            finally:
                with self._changed:
                    self._idle.append(ingest)
                    self._changed.notify_all()

        self._threads.submit(work_and_be_idle)

    def close(self) -> None:
        """Wait for all that was started, and end the threads."""
        self._threads.shutdown()


class Ingestion:
    """A worker's work: it reads one document at a time, and keeps the KV of others meanwhile."""

    def __init__(self, ingest: IngestParts, pulse: Pulse, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._ingest = ingest
        self._pulse = pulse
        self._stopping = threading.Event()
        self._pause = Pause(self._stopping, first_pause_s)
        self._kv_threads = KVThreads(ingest)

    def turn(self) -> None:
        """Work on the document whose turn it is; there may be none. One that lacks nothing but KV is left to a thread.
        Raises Interrupted when the worker stops."""
        with self._pause.during_outages():
            is_one_idle = self._kv_threads.is_one_idle()
            while (lease := take_next(self._ingest, unread_only=not is_one_idle)) is None and not is_one_idle:
                if self._stopping.is_set():
                    raise Interrupted
                is_one_idle = self._kv_threads.is_one_idle(LOOK_S)
            if lease is None:
                return
            if lacks_only_kv(lease, self._ingest):
                self._kv_threads.start(partial(self._keep_kv, lease))
            else:
                self._work_on(lease, self._ingest)

    def stop(self) -> None:
        """Send what is being worked on back to the queue, at its next report of progress."""
        self._stopping.set()

    def close(self) -> None:
        """Wait for the end of what was begun."""
        self._kv_threads.close()

    def _keep_kv(self, lease: Lease, ingest: IngestParts) -> None:
        try:
            with self._pause.during_outages():
                self._work_on(lease, ingest)
        except Interrupted:
            enqueue(lease.document_id, ingest.parts.queue)
        except Exception:
            log.exception("the KV of document %s", lease.document_id)

    def _work_on(self, lease: Lease, ingest: IngestParts) -> None:
        with self._pulse.working(), _as_caused(lease) as note:
            note(outcome := work_on(lease, ingest, self._note_progress, lease.others_wait))
        if outcome is IngestOutcome.YIELDED:
            enqueue(lease.document_id, ingest.parts.queue)

    def _note_progress(self, stage: str, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise Interrupted
        self._pulse.progressed()


def register_tasks(app: Celery, ingestion: Ingestion) -> None:
    """Register the task."""

    @app.task(name=INGEST, acks_late=True, shared=False)
    def ingest_task(document_id: str) -> None:
        """A message only wakes the worker: the document whose turn it is need not be the one that it names."""
        try:
            ingestion.turn()
        except Interrupted as stop:
            raise Reject(requeue=True) from stop


class Pause:
    """Exponential backoff of a worker's threads, each for itself: during an outage it tries one document a minute, not
    all of them."""

    def __init__(self, stopping: threading.Event, first_s: float) -> None:
        self._stopping = stopping
        self._first_s = first_s
        self._outages = Counter[int]()

    @contextmanager
    def during_outages(self) -> Iterator[None]:
        """Wait after a block that an outage ended, which is not raised."""
        try:
            yield
        except Exception as error:
            if not is_outage(error):
                raise
            self.after(error)
        else:
            self.reset()

    def after(self, error: Exception) -> None:
        """Wait, longer each time. Ends early when the worker stops."""
        self._outages[get_ident()] += 1
        seconds = retry_delay_s(self._outages[get_ident()], self._first_s)
        log.warning("a service that the worker needs is unavailable, next attempt in %.0f s: %s", seconds, error)
        self._stopping.wait(seconds)

    def reset(self) -> None:
        del self._outages[get_ident()]


@contextmanager
def _as_caused(lease: Lease) -> Iterator[Callable[[IngestOutcome], None]]:
    """Attribute log lines and spans to the request that queued the document, also when the task is retried.

    Yields a function to be called with the outcome.
    """
    began = time.perf_counter()
    cause = lease.cause()
    request_id = cause.get(CAUSE_HEADER)
    attributes = {
        "messaging.system": "redis",
        "messaging.operation.type": "process",
        "messaging.destination.name": QUEUE,
        "ragkv.document.id": lease.document_id,
    }
    bound = {"document_id": lease.document_id} | ({logs.REQUEST_ID: request_id} if request_id else {})
    kind = traces.SpanKind.CONSUMER
    with logs.bound(**bound), traces.continued(cause, f"process {QUEUE}", attributes, kind) as span:

        def note(outcome: IngestOutcome) -> None:
            span.set_attribute("ragkv.outcome", outcome)
            log.info("ingestion ended", extra={"outcome": outcome, "ms": round((time.perf_counter() - began) * 1e3)})

        yield note
