"""The queue's names and its producer side. The consumer side is `workers`."""

import logging

import celery
from kombu.exceptions import OperationalError

from ragkv.errors import Unavailable
from ragkv.service.base.redis import SILENCE_S
from ragkv.threads import CircuitBreaker

log = logging.getLogger(__name__)

INGEST = "ragkv.ingest"
QUEUE = "ragkv"
AWAY = "the queue is unavailable: try again, or see the service's log"


def make_celery(redis_url: str) -> celery.Celery:
    """The Celery app over Redis, as producers and workers configure it. Connects when first used."""
    app = celery.Celery("ragkv", broker=celery_url(redis_url), set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,  # the database says what became of a document
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # Celery's own 100 are spent after fifty minutes without Redis
        broker_transport_options={
            "visibility_timeout": 6 * 3600,
            "socket_connect_timeout": SILENCE_S,
            "socket_timeout": SILENCE_S,
        },
        task_publish_retry_policy={"max_retries": 1, "interval_start": 0.1},
    )
    return app


def celery_url(redis_url: str) -> str:
    """The URL in Celery's form: a unix socket is redis+socket://."""
    return redis_url.replace("unix://", "redis+socket://", 1)


class Queue:
    """Wakes workers: a message for each document, though whose turn it is the database decides.

    All methods raise Unavailable when Redis is away or full.
    """

    def __init__(self, app: celery.Celery) -> None:
        self._app = app
        self._breaker = CircuitBreaker(SILENCE_S, AWAY)

    def enqueue_ingest(self, document_id: str) -> None:
        """Call it after the commit: a worker may start at once."""
        try:
            with self._breaker.guarding():
                self._app.send_task(INGEST, args=[document_id])
        except OperationalError as error:
            raise _away(error) from error

    def depth(self) -> int:
        """Messages that no worker has taken yet."""
        with self._app.connection_for_write() as connection:
            try:
                with self._breaker.guarding():
                    connection.ensure_connection(max_retries=1, interval_start=0.1)
                    return int(connection.channel().queue_declare(QUEUE).message_count)
            except (OperationalError, *connection.connection_errors, *connection.channel_errors) as error:
                raise _away(error) from error


def _away(error: Exception) -> Unavailable:
    log.warning("the queue is unavailable: %s", error)
    return Unavailable(AWAY)
