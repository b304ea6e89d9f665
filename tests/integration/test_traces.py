"""Traces as a receiver gets them: what hangs together, what is in them, and what never is."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from celery import Celery

from ingest.parts import IngestParts
from ingest.pipeline import take_next
from ragkv.errors import Rejected, Unavailable
from ragkv.observe import logs, traces
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.queue import INGEST, QUEUE
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.otlp_receiver import Received, receiving
from tests.support.over_http import ADA, Client, upload
from tests.support.silent_server import silent_server
from workers.alive import Pulse
from workers.tasks import Ingestion, register_tasks

QUESTION = "Who wrote the first program?"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
SERVER, CONSUMER = 2, 5


@pytest.fixture
def received() -> Iterator[Received]:
    with receiving() as received:
        yield received


def asked(client: Client, received: Received, **body: object) -> Received:
    """What arrives when one question is asked within somebody's trace."""
    with traces.exporting(received.url, "serve"):
        client.post("/v1/ask", json={"question": QUESTION} | body, headers=TRACEPARENT | {"X-Request-ID": "r-1"})
    return received


class TestQuestions:
    def test_a_question_is_one_trace_under_the_callers_span(self, client: Client, answerable: str, received: Received):
        seen = asked(client, received)
        request = seen.named("POST /v1/ask")

        assert (request.kind, request.parent, request.trace) == (SERVER, CALLER, TRACE)
        for name in ("retrieval", "plan", "text_completion " + generated(seen)):
            assert (seen.named(name).parent, seen.named(name).trace) == (request.id, TRACE)

    def test_requests_are_described_by_the_conventions_for_http(
        self, client: Client, answerable: str, received: Received
    ):
        request = asked(client, received).named("POST /v1/ask")

        assert request.resource["service.name"] == "ragkv"
        assert request.attributes["ragkv.request_id"] == "r-1"
        names = ("http.request.method", "http.route", "url.path", "url.scheme", "http.response.status_code")
        assert [request.attributes[name] for name in names] == ["POST", "/v1/ask", "/v1/ask", "http", 200]

    @pytest.mark.parametrize("stream", [True, False])
    def test_generations_are_described_by_the_conventions_for_models(
        self, client: Client, answerable: str, received: Received, stream: bool
    ):
        seen = asked(client, received, stream=stream, max_tokens=2)
        attributes = seen.named("text_completion " + generated(seen)).attributes

        assert attributes["gen_ai.operation.name"] == "text_completion"
        assert attributes["gen_ai.request.max_tokens"] == 2
        assert attributes["gen_ai.usage.input_tokens"] == attributes["ragkv.tokens.computed"] > 50
        assert attributes["gen_ai.usage.output_tokens"] == 2
        assert attributes["gen_ai.response.finish_reasons"] == ["length"]
        assert attributes["gen_ai.response.time_to_first_chunk"] > 0
        assert {name for name in attributes if name.startswith("ragkv.tokens")} == {
            f"ragkv.tokens.{origin}" for origin in ("cached", "stitched", "recomputed", "computed")
        }

    def test_no_span_carries_text_of_questions_answers_or_documents(
        self, client: Client, answerable: str, received: Received
    ):
        with traces.exporting(received.url, "serve"):
            client.post("/v1/ask", json={"question": QUESTION})
            client.post("/v1/ask", json={"question": QUESTION, "collection": "no such place"})
            client.get("/v1/documents?name=lovelace-private")
            upload(client, ADA + b"More.")

        raw = b"".join(received.raw)
        assert len(received.spans) > 5
        for text in (b"first program", b"Lovelace", b"lovelace", b"Babbage", b"wrote it", b"no such place"):
            assert text not in raw

    def test_what_fails_is_marked_with_the_kind_of_error(
        self, client: Client, answerable: str, received: Received, engine
    ):
        engine.fail_after = 0
        seen = asked(client, received)
        generation, request = seen.named("text_completion " + generated(seen)), seen.named("POST /v1/ask")

        assert generation.is_error and generation.attributes["error.type"] == Unavailable.__name__
        assert request.is_error and request.attributes["error.type"] == "503"

    def test_probes_leave_no_trace(self, client: Client, received: Received):
        with traces.exporting(received.url, "serve"):
            client.get("/healthz")
            client.get("/nowhere")

        assert [span.name for span in received.spans] == ["GET (none)"]


class TestIngestion:
    def test_an_upload_and_what_a_worker_makes_of_it_are_one_trace(
        self, client: Client, parts: Parts, ingest: IngestParts, received: Received, redis_server: EmbeddedRedis
    ):
        with traces.exporting(received.url, "serve"):
            uploaded = upload(client, headers=TRACEPARENT | {"X-Request-ID": "u-1"}).json()["id"]
            work(parts, ingest)

        task = received.named(f"process {QUEUE}")
        assert (task.kind, task.trace, task.parent) == (CONSUMER, TRACE, received.named("POST /v1/documents").id)
        assert (task.attributes["ragkv.document.id"], task.attributes["ragkv.outcome"]) == (uploaded, "ready")
        for stage in ("parse", "embed", "prefill"):
            assert received.named(stage).parent == task.id


class TestOff:
    def test_without_an_endpoint_nothing_is_recorded_or_sent(self, client: Client, answerable: str):
        with traces.exporting(None, "serve"), traces.span("anything") as span:
            assert not span.is_recording()
            assert traces.headers() == {}

    def test_what_is_no_url_is_refused_with_an_example(self, settings: Settings):
        with pytest.raises(Rejected, match=r"127[.]0[.]0[.]1:4318"), traces.exporting("localhost:4318", "serve"):
            pass


def generated(seen: Received) -> str:
    """The model's name, as its span has it."""
    (name,) = [span.name for span in seen.spans if span.name.startswith("text_completion")]
    return name.removeprefix("text_completion ")


def work(parts: Parts, ingest: IngestParts) -> None:
    """Do in this process what a worker would do with the first message of the queue."""
    assert parts.redis.lpop(QUEUE)
    app = Celery("test", broker="memory://", set_as_current=False)
    with closing(Ingestion(ingest, Pulse(parts.heartbeats))) as ingestion:
        register_tasks(app, ingestion)
        app.tasks[INGEST].run("")
    assert logs.request_id() is None
    assert take_next(ingest) is None


class TestReceivers:
    def test_a_stop_waits_but_briefly_for_one_that_is_silent(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(traces, "END_S", 0.5)
        with silent_server() as server:
            with traces.exporting(f"http://127.0.0.1:{server.port}", "serve"), traces.span("retrieval"):
                began = time.monotonic()
            assert time.monotonic() - began < 0.5 * traces.TIMEOUT_S

    def test_no_body_of_a_response_is_read(self):
        sent: list[int] = []

        class Endless(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(200)
                self.end_headers()
                with suppress(OSError):
                    while len(sent) < 100:
                        self.wfile.write(bytes(2**20))
                        sent.append(2**20)

        with HTTPServer(("127.0.0.1", 0), Endless) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with traces.exporting(f"http://127.0.0.1:{server.server_port}", "serve"), traces.span("retrieval"):
                pass
            server.shutdown()
        assert len(sent) < 100
