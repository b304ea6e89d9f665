"""How the service stops: under a real web server, with an engine that takes its time."""

import asyncio
import io
import logging
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx
import msgspec
import pytest

from api.app import create_app
from api.http.draining import Draining
from api.http.server import Server, listen
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.observe import metrics
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.documents.documents import store_document
from ragkv.service.parts import Parts
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import ADA, assert_problem, events_of, upload, wait_until, wait_until_ready

QUESTION = {"question": "Who wrote the first program?", "stream": True}
PIECE_S = 0.4
LONG_S = 15
"""Far longer than it may take to cut something off."""
WHOLE = "Ada Lovelace wrote it."


class Worker:
    """A helper that remembers how it was told to end."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.killed = threading.Event()

    def stop(self) -> None:
        self.stopped.set()

    def kill(self) -> None:
        self.killed.set()


@dataclass
class Running:
    """A service in a thread."""

    server: Server
    client: httpx.Client
    thread: threading.Thread
    worker: Worker = field(default_factory=Worker)

    def signal(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)

    @property
    def has_ended(self) -> bool:
        return not self.thread.is_alive()


@pytest.fixture
def engine(settings) -> EchoEngine:
    return EchoEngine(settings, PIECE_S)


@pytest.fixture
def ready(parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis) -> Parts:
    """Parts with a document to ask about."""
    ingest_document(
        store_document(parts.default_collection, "ada.md", io.BytesIO(ADA), parts.intake).document_id, ingest
    )
    return parts


@contextmanager
def running(parts: Parts, grace_s: float = 30) -> Iterator[Running]:
    draining, worker, listener = Draining(), Worker(), listen("127.0.0.1", 0)
    server = Server(create_app(parts, draining), draining, grace_s, worker)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=30) as client:
            wait_until_ready(client)
            yield Running(server, client, thread, worker)
    finally:
        server.handle_exit(signal.SIGTERM, None)
        server.handle_exit(signal.SIGTERM, None)
        thread.join()


@contextmanager
def asking(service: Running) -> Iterator[Iterator[str]]:
    """A stream that has begun: its text, as it comes."""
    with service.client.stream("POST", "/v1/ask", json=QUESTION) as response:
        yield response.iter_text()


def test_a_stream_that_has_begun_is_finished_and_then_everything_ends(ready: Parts, engine: EchoEngine):
    with running(ready) as service, asking(service) as pieces:
        begun = next(pieces)
        service.signal()
        text = begun + "".join(pieces)

        assert dict(events_of(text))["done"]["answer"] == WHOLE
        wait_until(lambda: service.has_ended)
        assert (engine.closed, engine.started) == (0, False)
        assert service.worker.stopped.is_set()
        assert not service.worker.killed.is_set()


def test_meanwhile_readyz_says_so_and_nothing_new_is_answered(ready: Parts):
    with running(ready) as service, ExitStack() as streams:
        pieces = streams.enter_context(asking(service))
        next(pieces)
        service.signal()
        wait_until(lambda: service.client.get("/readyz").status_code == 503)

        assert service.client.get("/readyz").json()["service"].startswith("shutting down")
        assert service.client.get("/healthz").status_code == 200
        assert service.client.get("/metrics").status_code == 200
        for response in (service.client.post("/v1/ask", json=QUESTION), upload(service.client)):
            assert_problem(response, 503, "shutting down")
            assert int(response.headers["retry-after"]) > 0
        assert service.worker.stopped.is_set()
        assert "done" in "".join(pieces)


def test_questions_that_wait_for_their_turn_are_refused(ready: Parts):
    """They would not be finished in time; elsewhere they can begin at once."""
    ready.settings = msgspec.structs.replace(ready.settings, max_questions=1)
    with running(ready) as service, ExitStack() as streams, ThreadPoolExecutor() as threads:
        pieces = streams.enter_context(asking(service))
        next(pieces)
        waiting = threads.submit(service.client.post, "/v1/ask", json=QUESTION)
        wait_until(lambda: metrics.OURS.get_sample_value("ragkv_questions_waiting"))
        service.signal()
        assert_problem(waiting.result(5), 503, "shutting down")
        assert int(waiting.result().headers["retry-after"]) > 0
        assert "done" in "".join(pieces)


def test_streams_of_progress_end_at_once(ready: Parts):
    with running(ready) as service:
        upload(service.client, b"A document that nobody reads.")
        with service.client.stream("GET", "/v1/collections/default/events") as response:
            pieces = response.iter_text()
            next(pieces)
            began = time.monotonic()
            service.signal()
            list(pieces)
        wait_until(lambda: service.has_ended)

        assert time.monotonic() - began < LONG_S


def test_a_second_signal_cuts_off_what_runs(ready: Parts, engine: EchoEngine):
    engine.piece_s = LONG_S
    with running(ready) as service:
        asked = threading.Thread(target=_ask_in_vain, args=(service,))
        asked.start()
        wait_until(lambda: engine.running)
        began = time.monotonic()
        service.signal()
        service.signal()
        wait_until(lambda: service.has_ended)
        asked.join()

        assert time.monotonic() - began < LONG_S
        assert (engine.closed, engine.started) == (1, False)
        assert service.worker.killed.is_set()


def test_what_takes_longer_than_the_grace_is_cut_off(ready: Parts, engine: EchoEngine):
    engine.piece_s = LONG_S
    with running(ready, grace_s=0.5) as service:
        asked = threading.Thread(target=_ask_in_vain, args=(service,))
        asked.start()
        wait_until(lambda: engine.running)
        began = time.monotonic()
        service.signal()
        wait_until(lambda: service.has_ended)
        asked.join()

        assert 0.5 < time.monotonic() - began < LONG_S
        assert (engine.closed, engine.started) == (1, False)


def test_what_is_cut_off_leaves_no_traces(ready: Parts, engine: EchoEngine, caplog: pytest.LogCaptureFixture):
    """Neither an answer that has begun nor one that has not. Each request has its one line."""
    engine.words = engine.words * 100
    caplog.set_level(logging.INFO)
    with running(ready, grace_s=0.2) as service, ExitStack() as streams, ThreadPoolExecutor() as threads:
        begun = [streams.enter_context(asking(service)) for _ in range(3)]
        for pieces in begun:
            next(pieces)
        engine.piece_s = LONG_S
        waiting = [threads.submit(_ask_in_vain, service) for _ in range(3)]
        wait_until(lambda: engine.running == len(begun) + len(waiting))
        service.signal()
        wait_until(lambda: service.has_ended)
        for asked in waiting:
            asked.result()
        for pieces in begun:
            rest: list[str] = []
            with pytest.raises(httpx.HTTPError):  # proxies may end a response that was cut off like a whole one
                rest.extend(pieces)
            assert "shutting down" in dict(events_of("".join(rest)))["error"]["detail"]

    assert [record for record in caplog.records if record.exc_info] == []
    told = [record.status for record in caplog.records if record.msg == "request" and record.route == "/v1/ask"]
    assert sorted(told) == [200] * len(begun) + [503] * len(waiting)


@pytest.mark.parametrize(
    ("ends", "raised"),
    [(True, ValueError), (False, asyncio.CancelledError)],
    ids=["a bug while it stops", "before that"],
)
def test_every_other_error_keeps_its_trace(ends: bool, raised: type[BaseException], caplog: pytest.LogCaptureFixture):
    """Of an app that breaks, not of a request that was cut off."""
    draining, listener = Draining(), listen("127.0.0.1", 0)

    async def breaking(ref, receive, send) -> None:
        if ref["type"] == "http":
            if ends:
                server.handle_exit(signal.SIGTERM, None)
                await draining.wait_started(30)
            raise raised("broken")
        for stage in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{stage}.complete"})

    server = Server(breaking, draining, 1)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    assert httpx.get(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30).status_code == 500
    server.handle_exit(signal.SIGTERM, None)
    thread.join()

    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [raised]


def test_idle_it_stops_at_once(ready: Parts):
    with running(ready) as service:
        began = time.monotonic()
        service.signal()
        wait_until(lambda: service.has_ended)

        assert time.monotonic() - began < LONG_S


def _ask_in_vain(service: Running) -> None:
    url = service.client.base_url.join("/v1/ask")
    assert_problem(httpx.post(url, json=QUESTION | {"stream": False}, timeout=30), 503, "shutting down")
