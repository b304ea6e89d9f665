"""The worker process, loaded by `celery -A workers.app worker`. A composition root.

One document is read at a time (`--pool solo`), while the engine computes the KV of others. More workers on more
machines share the work through leases.
"""

import logging
import os
import threading
import warnings
from contextlib import ExitStack
from typing import Any

from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_init, worker_ready, worker_shutdown, worker_shutting_down

from ingest.parts import IngestParts
from ragkv.errors import RagKVError
from ragkv.observe import logs, traces
from ragkv.service.base.queue import make_celery
from ragkv.service.base.redis import redis_url
from ragkv.service.documents.requeue import enqueue
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from workers.alive import Pulse
from workers.repeating import Uploads, delivering, syncing
from workers.sweep import Sweeper
from workers.tasks import FIRST_PAUSE_S, Ingestion, Pause, register_tasks
from workers.watching import Watching

os.umask(0o077)  # files are readable by this user only
warnings.simplefilter("ignore", SecurityWarning)  # warns root of pickled messages; ours are JSON

log = logging.getLogger("ragkv")
settings = Settings.from_env(os.environ)
logs.configure(settings.log_format, settings.log_level, "worker")
app = make_celery(redis_url(settings))
parts = Parts(settings)
pulse = Pulse(parts.heartbeats)
uploads = Uploads(parts)
ingest = IngestParts(
    parts,
    parts.worker_counters,
    parts.prefill_engine,
    uploads.kept,
    attached=lambda document_id: enqueue(document_id, parts.queue),
)
ingestion = Ingestion(ingest, pulse)
register_tasks(app, ingestion)
beside = (
    Sweeper(parts),
    uploads,
    delivering(parts, silent=False),
    delivering(parts, silent=True),
    syncing(parts),
    Watching(parts),
)
"""Threads beside ingestion."""
tracing = ExitStack()


@setup_logging.connect(weak=False)
def leave_logs_alone(**signal: Any) -> None:
    """Keep Celery from configuring logging: it does so unless this signal has a listener."""


@worker_init.connect(weak=False)
def prepare(**signal: Any) -> None:
    """Wait for what is away, and end where the start is refused: of a listener's other exceptions Celery takes no
    notice, and the worker would go on, over a schema that this version does not know, say."""
    tracing.enter_context(traces.exporting(settings.otlp_endpoint, "worker"))
    pause = Pause(threading.Event(), FIRST_PAUSE_S)
    try:
        while True:
            with pause.during_outages():
                parts.prepare(log.info)
                parts.refresh_outdated()  # marked at the service's start, but an earlier worker may have read them
                return
    except Exception as error:
        log.critical("the worker does not start: %s", error, exc_info=not isinstance(error, RagKVError))
        raise SystemExit(1) from None


@worker_ready.connect(weak=False)
def start_threads(**signal: Any) -> None:
    for thread in (*beside, pulse):
        thread.start()


@worker_shutting_down.connect(weak=False)
def stop_early(**signal: Any) -> None:
    """Return the present documents to the queue at their next report of progress, and stop the threads beside
    ingestion."""
    ingestion.stop()
    for thread in beside:
        thread.stop()


@worker_shutdown.connect(weak=False)
def say_goodbye(**signal: Any) -> None:
    ingestion.close()
    pulse.stop()
    tracing.close()
