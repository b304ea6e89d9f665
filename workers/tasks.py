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
from ragkv.errors import Unavailable
from ragkv.observe import logs, traces
from ragkv.parts import Parts
from ragkv.queue import CAUSED_BY, INGEST, QUEUE
from workers.pulse import Pulse

log = logging.getLogger("ragkv.ingest")

RETRY_BACKOFF_S = 5


def register_ingest(app: Celery, parts: Parts, pulse: Pulse) -> threading.Event:
    """Register the ingest task. Setting the event it returns sends the present document back to the queue."""
    stopping = threading.Event()
    ingest = IngestParts(parts, parts.tally)

    def stop_if_asked(stage: str, done: int, total: int) -> None:
        if stopping.is_set():
            raise Interrupted
        pulse.progressed()

    @app.task(name=INGEST, bind=True, acks_late=True, max_retries=3)
    def ingest_task(self: Task, document_id: str) -> None:
        """Idempotent: a document that is finished, gone or in other hands returns at once."""
        try:
            with pulse.working(), _as_caused(self, document_id) as note:
                note(ingest_document(document_id, ingest, stop_if_asked))
        except Interrupted as stop:
            raise Reject(requeue=True) from stop
        except Unavailable as error:
            raise self.retry(exc=error, countdown=RETRY_BACKOFF_S * 2**self.request.retries) from error

    return stopping


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
