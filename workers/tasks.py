"""The tasks: a name, a policy and a call each."""

import threading

from celery import Celery, Task
from celery.exceptions import Reject

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ingest.progress import Interrupted
from ragkv.errors import Unavailable
from ragkv.parts import Parts
from ragkv.queue import INGEST

RETRY_BACKOFF_S = 5


def register_ingest(app: Celery, parts: Parts) -> threading.Event:
    """Register the ingest task. Setting the event it returns sends the present document back to the queue."""
    stopping = threading.Event()
    ingest = IngestParts(parts)

    def stop_if_asked(stage: str, done: int, total: int) -> None:
        if stopping.is_set():
            raise Interrupted

    @app.task(name=INGEST, bind=True, acks_late=True, max_retries=3)
    def ingest_task(self: Task, document_id: str) -> None:
        """Idempotent: a document that is finished, gone or in other hands returns at once."""
        try:
            ingest_document(document_id, ingest, stop_if_asked)
        except Interrupted as stop:
            raise Reject(requeue=True) from stop
        except Unavailable as error:
            raise self.retry(exc=error, countdown=RETRY_BACKOFF_S * 2**self.request.retries) from error

    return stopping
