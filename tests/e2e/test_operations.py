"""What people who run `ragkv serve` see of it, with the real engine: its log, its figures, and how it stops."""

import json
import re
import signal
import threading
from pathlib import Path

import httpx
import pytest

from tests.e2e.service import SAMPLE, Service

DOCS = Path(__file__).parents[2] / "docs"
QUESTION = "Who directed the film Madame la Presidente?"
UPLOAD_ID = "upload-of-films"


@pytest.fixture(scope="module")
def service(closed_service: Service) -> Service:
    """A service that has read one document."""
    body = (SAMPLE / "films.md").read_bytes()
    upload = closed_service.client.post(
        "/v1/documents", files={"file": ("films.md", body)}, headers={"X-Request-ID": UPLOAD_ID}
    )
    assert closed_service.finished(upload.json()["id"])["status"] == "ready"
    return closed_service


def lines(service: Service) -> list[dict[str, object]]:
    """The objects in its log."""
    return [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]


class TestLog:
    def test_ours_workers_and_vllms_lines_are_objects_of_one_form(self, service: Service):
        service.ask(QUESTION)
        seen = lines(service)

        assert {"timestamp", "level", "logger", "process", "message"} <= set.intersection(*(set(line) for line in seen))
        assert {"serve", "worker"} < {line["process"] for line in seen}
        loggers = {str(line["logger"]) for line in seen}
        assert "ragkv.access" in loggers
        assert any(name.startswith("vllm.") for name in loggers)

    def test_hardly_anything_is_said_past_the_log(self, service: Service):
        """Libraries that print leave a few lines; none has the form of a log."""
        other = [line for line in service.log.read_text().splitlines() if not line.startswith("{")]

        assert len(other) < len(lines(service)) / 2, other
        assert not [line for line in other if re.match(r"(INFO|WARNING|ERROR|\(EngineCore)", line)]

    def test_the_workers_lines_name_the_upload_that_caused_them(self, service: Service):
        body = b"%PDF-1.4 not really"
        service.client.post("/v1/documents", files={"file": ("x.pdf", body)}, headers={"X-Request-ID": "bad-upload"})

        def failed() -> bool:
            return any(
                line["process"] == "worker" and line.get("request_id") == "bad-upload" for line in lines(service)
            )

        service.wait_until(failed)


class TestFigures:
    def test_vllms_are_there_with_the_names_that_the_documentation_and_the_dashboard_use(self, service: Service):
        service.ask(QUESTION)
        text = service.client.get("/metrics").text
        named = re.findall(r"^\| `(vllm:[a-z_]+)`", (DOCS / "operations" / "monitor.md").read_text(), re.MULTILINE)

        assert len(named) >= 3
        for name in named:
            assert f"\n{name}{{" in text

    def test_tokens_by_origin_and_workers_work_are_counted(self, service: Service):
        usage = service.ask(QUESTION)["usage"]
        text = service.client.get("/metrics").text

        assert usage["stitched"] + usage["cached"] > 0
        assert 'ragkv_prompt_tokens_total{origin="stitched"}' in text
        assert 'ragkv_ingest_stage_seconds_count{stage="prefill"}' in text
        assert 'ragkv_part_up{part="engine"} 1.0' in text

    def test_how_much_of_the_engines_cache_is_held_is_seen(self, service: Service):
        service.ask(QUESTION)
        device = service.client.get("/v1/kv").json()["tiers"]["device"]

        assert 0 <= device["used_bytes"] < device["capacity_bytes"]


def test_sigterm_finishes_a_stream_that_has_begun(service: Service):
    """The last test: it stops the service."""
    pieces: list[str] = []
    begun = threading.Event()

    def ask() -> None:
        body = {"question": QUESTION, "stream": True, "max_tokens": 120}
        url = service.client.base_url.join("/v1/ask")
        with httpx.stream("POST", url, json=body, headers=service.client.headers, timeout=120) as response:
            for piece in response.iter_text():
                pieces.append(piece)
                begun.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(60)
    stopped = service.terminate()
    asking.join()

    assert "event: done" in "".join(pieces)
    assert (stopped.code, stopped.left) == (128 + signal.SIGTERM, [])
