"""The worker process: what `celery -A workers.app worker` loads. A composition root.

One document at a time (`--pool solo`): the model under Transformers takes all cores, and forked children could not
use it. More workers on more machines share the work through leases.
"""

import logging
import os
import warnings
from typing import Any

from celery.platforms import SecurityWarning
from celery.signals import worker_init, worker_ready, worker_shutting_down

from ragkv.parts import Parts
from ragkv.queue import make_celery
from ragkv.redis_door import redis_url
from ragkv.settings import Settings
from workers.sweep import Sweeper
from workers.tasks import register_ingest

os.umask(0o077)  # whatever is written is for this user alone
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s worker %(name)s: %(message)s")
warnings.simplefilter("ignore", SecurityWarning)  # warns root of pickled messages; ours are JSON

settings = Settings.from_env(os.environ)
app = make_celery(redis_url(settings))
parts = Parts(settings)
stopping = register_ingest(app, parts)
sweeper = Sweeper(parts)


@worker_init.connect(weak=False)
def prepare(**signal: Any) -> None:
    parts.prepare(logging.getLogger("ragkv").info)


@worker_ready.connect(weak=False)
def start_sweeping(**signal: Any) -> None:
    sweeper.start()


@worker_shutting_down.connect(weak=False)
def stop_early(**signal: Any) -> None:
    """The present document goes back to the queue at its next report of progress."""
    stopping.set()
    sweeper.stop()
