"""The API and a worker as processes that can be killed: forked from one that has imported everything.

What is imported here takes seconds, and each round of `tests/chaos/test_rounds.py` starts such a process anew.
"""

import importlib
import multiprocessing
import os
import re
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from ctypes import c_double
from multiprocessing.context import ForkServerProcess

import celery.apps.worker
import kombu.transport.redis
import sentence_transformers  # noqa: F401 - see above
import transformers.models.llama.modeling_llama  # noqa: F401

import ingest.pipeline
import ragkv.service.base.long_work
import workers.sweep
import workers.tasks
from api.app import create_app
from api.http.draining import Draining
from api.http.server import Server, listen
from ragkv.engine.protocol import Engine, Generate, Output
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.chaos.clock import follow
from tests.support.echo_engine import EchoEngine

assert celery.apps.worker and kombu.transport.redis and ingest.pipeline

FACT = re.compile(r"The code of ([a-z]+-\d+) is (\d+)\.")
ASKED = re.compile(r"What is the code of ([a-z]+-\d+)\?")
UNKNOWN = "unknown"
SWEEP_S = 0.5
PAUSE_S = 1.0
PIECE_S = 1.0


class ReadingEngine(EchoEngine):
    """Answers `What is the code of NAME?` with what the passages of the prompt say."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.settings)
        self._parts = parts
        self.stitches = True

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        self.words = [_answer(self._parts.tokenizer.decode(request.token_ids))]
        async for piece in super().generate(request):
            yield piece


def _answer(prompt: str) -> str:
    asked = ASKED.findall(prompt)
    codes = dict(FACT.findall(prompt))
    return codes.get(asked[-1], UNKNOWN) if asked else UNKNOWN


def start(target: str, environ: dict[str, str], port: int, clock: c_double) -> ForkServerProcess:
    """Start `run_api` or `run_worker` in a process of its own, which goes by `clock`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=globals()[target], args=(environ, port, clock))
    process.start()
    return process


def run_api(environ: dict[str, str], port: int, clock: c_double) -> None:
    _become(environ, clock)
    _serve(port, ReadingEngine)


def run_slow_api(environ: dict[str, str], port: int, clock: c_double) -> None:
    """An API whose answers, of some words, take a few seconds."""
    _become(environ, clock)
    _serve(port, lambda parts: EchoEngine(parts.settings, PIECE_S))


def _serve(port: int, engine_of: Callable[[Parts], Engine]) -> None:
    parts = Parts(Settings.from_env(os.environ))
    parts.engine = engine_of(parts)
    parts.prepare()
    draining = Draining()
    with closing(listen("127.0.0.1", port)) as listener:
        Server(create_app(parts, draining), draining, grace_s=1).run(sockets=[listener])


def run_worker(environ: dict[str, str], port: int, clock: c_double) -> None:
    """The worker as it is, but that it looks for what was dropped twice a second."""
    _become(environ, clock)
    workers.sweep.Sweeper.__init__.__defaults__ = (SWEEP_S,)
    app = importlib.import_module("workers.app").app
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    app.worker_main(["--quiet", "worker", "--pool", "solo", "--loglevel", "WARNING", *quiet])


def _become(environ: dict[str, str], clock: c_double) -> None:
    """A session of its own, so that one signal ends all its processes, and a log beside its data.

    After an outage everything is tried again within a second, not a minute.
    """
    os.setsid()
    os.environ.update(environ)
    follow(clock)
    ragkv.service.base.long_work.LONGEST_DELAY_S = PAUSE_S
    log = os.open(f"{environ['RAGKV_DATA_DIR']}/chaos.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    warnings.simplefilter("ignore")
