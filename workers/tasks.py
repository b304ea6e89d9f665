"""The tasks: a name, a policy and a call each."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery import Celery, Task
from celery.exceptions import Reject

from ingest.parts import IngestParts
from ingest.pipeline import Outcome, ingest_document
from ingest.progress import Interrupted
from ragkv.observe import logs, traces
from ragkv.outages import is_outage, retry_delay_s
from ragkv.parts import Parts
from ragkv.queue import CAUSED_BY, INGEST, QUEUE
from workers.pulse import Pulse

log = logging.getLogger("ragkv.ingest")

FIRST_PAUSE_S = 1.0


def register_ingest(app: Celery, parts: Parts, pulse: Pulse, first_pause_s: float = FIRST_PAUSE_S) -> threading.Event:
    """Register the ingest task. Setting the event it returns sends the present document back to the queue."""
    stopping = threading.Event()
    ingest = IngestParts(parts, parts.tally)
    pause = Pause(stopping, first_pause_s)

    def stop_if_asked(stage: str, done: int, total: int) -> None:
        if stopping.is_set():
            raise Interrupted
        pulse.progressed()

    @app.task(name=INGEST, bind=True, acks_late=True)
    def ingest_task(self: Task, document_id: str) -> None:
        """Idempotent: a document that is finished, gone or in other hands returns at once."""
        try:
            with pulse.working(), _as_caused(self, document_id) as note:
                note(ingest_document(document_id, ingest, stop_if_asked))
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
    """Exponential backoff of one worker: while what it needs is away, it tries one document a minute, not all of them."""

    def __init__(self, stopping: threading.Event, first_s: float) -> None:
        self._stopping = stopping
        self._first_s = first_s
        self._outages = 0

    def after(self, error: Exception) -> None:
        """Wait, longer each time. Ends early when the worker is to stop."""
        self._outages += 1
        seconds = retry_delay_s(self._outages, self._first_s)
        log.warning("something the worker needs is away, next try in %.0f s: %s", seconds, error)
        self._stopping.wait(seconds)

    def reset(self) -> None:
        self._outages = 0


@contextmanager
def _as_caused(task: Task, document_id: str) -> Iterator[Callable[[Outcome], None]]:
    """Lines and spans belong to the request that queued the document, also where the task is tried again.

    What it gives is to be told the outcome.
    """
    began = time.perf_counter()
    request_id = task.request.get(CAUSED_BY)
    headers = {traces.PARENT: task.request.get(traces.PARENT) or ""}
    attributes = {
        "messaging.system": "redis",
        "messaging.operation.type": "process",
        "messaging.destination.name": QUEUE,
        "ragkv.document.id": document_id,
    }
    bound = {"document_id": document_id} | ({logs.REQUEST_ID: request_id} if request_id else {})
    kind = traces.SpanKind.CONSUMER
    with logs.bound(**bound), traces.continued(headers, f"process {QUEUE}", attributes, kind) as span:

        def note(outcome: Outcome) -> None:
            span.set_attribute("ragkv.outcome", outcome)
            log.info("ingestion ended", extra={"outcome": outcome, "ms": round((time.perf_counter() - began) * 1e3)})

        yield note
