"""The Celery task: a name, a retry policy and a call."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery import Celery, Task
from celery.exceptions import Reject

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, take_next, work_on
from ingest.turn import Interrupted
from ragkv.observe import logs, traces
from ragkv.observe.traces import CAUSE_HEADER
from ragkv.service.base.outages import is_outage, retry_delay_s
from ragkv.service.base.queue import INGEST, QUEUE
from ragkv.service.documents.lease import Lease
from ragkv.service.documents.requeue import enqueue
from workers.pulse import Pulse

log = logging.getLogger("ragkv.ingest")

FIRST_PAUSE_S = 1.0


def register_tasks(
    app: Celery, ingest: IngestParts, pulse: Pulse, first_pause_s: float = FIRST_PAUSE_S
) -> threading.Event:
    """Register the task. Setting the returned event sends what is being worked on back to the queue."""
    stopping = threading.Event()

    def stop_if_asked(stage: str, done: int, total: int) -> None:
        if stopping.is_set():
            raise Interrupted
        pulse.progressed()

    pause = Pause(stopping, first_pause_s)

    @app.task(name=INGEST, bind=True, acks_late=True, shared=False)
    def ingest_task(self: Task, document_id: str) -> None:
        """Work on the document whose turn it is, which need not be the one the message names; there may be none."""
        try:
            if (lease := take_next(ingest)) is not None:
                with pulse.working(), _as_caused(lease) as note:
                    note(outcome := work_on(lease, ingest, stop_if_asked, lease.others_wait))
                if outcome is IngestOutcome.YIELDED:
                    enqueue(lease.document_id, ingest.parts.queue)
        except Interrupted as stop:
            raise Reject(requeue=True) from stop
        except Exception as error:
            if not is_outage(error):
                raise
            pause.after(error)
        else:
            pause.reset()

    return stopping


class Pause:
    """Exponential backoff of one worker: during an outage it tries one document a minute, not all of them."""

    def __init__(self, stopping: threading.Event, first_s: float) -> None:
        self._stopping = stopping
        self._first_s = first_s
        self._outages = 0

    def after(self, error: Exception) -> None:
        """Wait, longer each time. Ends early when the worker stops."""
        self._outages += 1
        seconds = retry_delay_s(self._outages, self._first_s)
        log.warning("a service that the worker needs is unavailable, next attempt in %.0f s: %s", seconds, error)
        self._stopping.wait(seconds)

    def reset(self) -> None:
        self._outages = 0


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
