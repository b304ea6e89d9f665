"""`ragkv serve` from the first start to the second, with the real engine. One service answers every test."""

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.service import SAMPLE, Service, Stopped, command_line, environment, started
from tests.support.over_http import assert_problem, events_of

QUESTION = "Who directed the film Madame la Presidente?"
MAX_UPLOAD_BYTES = 50_000
LONG_STREAM = {"question": QUESTION, "stream": True, "max_tokens": 120, "mode": "full"}
KILLS = int(os.environ.get("ENGINE_KILLS", "4"))
"""In the long form."""
CLIENTS = 4
"""That ask while the engine is killed."""
PROBE_S = 3
"""What a supervisor waits for /healthz."""
ENCRYPTED = (
    b"%PDF-1.5\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Count 0 /Kids [] >>\nendobj\n"
    b"trailer\n<< /Size 3 /Root 1 0 R /Encrypt << /Filter /Standard /V 1 /R 2 /O <" + b"0" * 64 + b"> /U <" + b"0" * 64
    + b"> /P -4 >> /ID [<00> <00>] >>\n%%EOF\n"
)  # fmt: skip


@dataclass
class Early:
    """What a client saw before the engine was there."""

    readyz: int = 0
    asked: httpx.Response | None = None
    healthz: list[float] = field(default_factory=list)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve") / "data"


@pytest.fixture(scope="module")
def starting(data_dir: Path, language_model: Path, free_port: Callable[[], int]) -> Iterator[Service]:
    """The service, up but perhaps without its engine."""
    environ = environment(data_dir, language_model, max_upload_bytes=MAX_UPLOAD_BYTES)
    with started(environ, free_port(), data_dir.with_name("serve.log")) as service:
        service.wait_until(lambda: service.answers("/healthz"))
        yield service


@pytest.fixture(scope="module")
def early(starting: Service) -> Early:
    """Watched from the first answer until the engine is ready."""
    seen = Early(starting.client.get("/readyz").status_code)

    def loaded() -> bool:
        """Until the models are loaded, which may take longer than a question waits."""
        seen.healthz.append(starting.client.get("/healthz").elapsed.total_seconds())
        seen.asked = starting.client.post("/v1/ask", json={"question": QUESTION})
        return seen.asked.status_code != HTTPStatus.SERVICE_UNAVAILABLE

    starting.wait_until(loaded)

    def ready() -> bool:
        seen.healthz.append(starting.client.get("/healthz").elapsed.total_seconds())
        return starting.answers("/readyz")

    starting.wait_until(ready)
    return seen


@pytest.fixture(scope="module")
def service(starting: Service, early: Early) -> Service:
    """The service with its engine, and with no document."""
    return starting


@pytest.fixture(scope="module")
def accepted(service: Service) -> dict[str, httpx.Response]:
    """The uploads of two sample documents."""
    names = ("films.md", "aviation-and-space.pdf")
    return {name: service.upload(name, (SAMPLE / name).read_bytes()) for name in names}


@pytest.fixture(scope="module")
def sample(service: Service, accepted: dict[str, httpx.Response]) -> dict[str, Any]:
    """Both documents, ready."""
    return {name: service.finished(response.json()["id"]) for name, response in accepted.items()}


@pytest.fixture(scope="module")
def restarted(service: Service, sample: dict[str, Any]) -> Stopped:
    """How the service stopped at SIGTERM, before it was started again over the same data."""
    stopped = service.terminate()
    service.start()
    service.wait_ready()
    return stopped


def assert_whole(usage: dict[str, int]) -> None:
    parts = ("cached", "stitched", "recomputed", "computed")
    assert usage["prompt"] == sum(usage[name] for name in parts)


class TestStarting:
    def test_readyz_is_503_before_the_engine_is_there_and_200_after(self, service: Service, early: Early):
        assert early.readyz == 503
        assert service.client.get("/readyz").json()["ready"] is True

    def test_healthz_answers_all_the_while_the_engine_starts(self, early: Early):
        assert early.readyz == 503
        assert max(early.healthz) < PROBE_S

    def test_asking_an_empty_collection_says_to_upload_something(self, early: Early):
        assert early.asked is not None
        assert (early.asked.status_code, early.asked.json()["no_passages"]) == (200, True)
        assert "upload" in early.asked.json()["answer"]

    def test_sigterm_while_the_engine_starts_stops_everything(
        self, tmp_path: Path, language_model: Path, free_port: Callable[[], int]
    ):
        environ = environment(tmp_path, language_model)
        with started(environ, free_port(), tmp_path / "log", "--no-worker") as service:
            service.wait_until(lambda: service.answers("/healthz") and _engine_of(service) is not None)
            stopped = service.terminate()

        assert (stopped.code, stopped.left) == (128 + signal.SIGTERM, [])


class TestDocuments:
    def test_uploads_are_accepted_and_become_ready(self, accepted: dict[str, httpx.Response], sample: dict[str, Any]):
        assert {response.status_code for response in accepted.values()} == {202}
        for document in sample.values():
            assert (document["status"], document["error"]) == ("ready", None)
            assert document["done"] == document["total"] == document["tokens"] > 0
        assert sample["aviation-and-space.pdf"]["media_type"] == "application/pdf"

    def test_the_same_bytes_again_are_the_same_document(self, service: Service, sample: dict[str, Any]):
        again = service.upload("renamed.md", (SAMPLE / "films.md").read_bytes())

        assert (again.status_code, again.json()["id"]) == (200, sample["films.md"]["id"])

    @pytest.mark.parametrize(
        ("name", "body", "reason"),
        [
            ("secret.pdf", ENCRYPTED, "remove the password"),
            ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "it is an image"),
            ("pretender.pdf", b"words", "ends in .pdf"),
            ("blank.txt", b" \n \n", "empty"),
        ],
    )
    def test_a_file_that_cannot_be_read_fails_with_the_reason(
        self, service: Service, name: str, body: bytes, reason: str
    ):
        document = service.read(name, body)

        assert document["status"] == "failed"
        assert reason in document["error"]

    def test_empty_and_oversized_uploads_are_refused_with_the_reason(self, service: Service):
        assert_problem(service.upload("none.md", b""), 422, "empty")
        assert_problem(service.upload("long.md", b"x" * (MAX_UPLOAD_BYTES + 1)), 413, "RAGKV_MAX_UPLOAD_BYTES")
        assert_problem(service.upload("vast.md", b"x" * MAX_UPLOAD_BYTES * 4), 413, "RAGKV_MAX_UPLOAD_BYTES")

    def test_a_deleted_document_is_no_longer_found_and_leaves_no_kv(
        self, service: Service, sample: dict[str, Any], data_dir: Path
    ):
        before = kv_files(data_dir)
        document = service.read("zembla.txt", b"The lighthouse of Zembla was built in 1742 by Ragnhild Oste.\n")
        assert document["id"] in found_in(service.ask("Who built the lighthouse of Zembla?"))

        assert service.client.delete(f"/v1/documents/{document['id']}").status_code == 204
        answer = service.ask("Who built the lighthouse of Zembla?")
        assert document["id"] not in found_in(answer)
        assert answer["usage"]["failed_chunks"] == 0
        assert kv_files(data_dir) == before


class TestAsking:
    def test_an_answer_comes_with_citations_times_and_counts(self, service: Service, sample: dict[str, Any]):
        answer = service.ask("Who composed the music of Billy Elliot?", policy="none")

        assert answer["answer"]
        assert answer["usage"]["stitched"] > 0
        assert answer["usage"]["failed_chunks"] == 0
        assert_whole(answer["usage"])
        assert 0 < answer["timings"]["engine_ttft_ms"] < answer["timings"]["ttft_ms"] < answer["timings"]["total_ms"]
        assert answer["citations"]
        for citation in answer["citations"]:
            assert citation["document_id"] in {document["id"] for document in sample.values()}
            assert citation["chunk_id"] in {passage["chunk_id"] for passage in answer["passages"]}

    def test_what_is_said_by_default_is_stitched_in_part_and_recomputed_in_part(
        self, service: Service, sample: dict[str, Any]
    ):
        usage = service.ask("Where was the film Gaby: A True Story made?")["usage"]

        assert usage["stitched"] > usage["recomputed"] > 0
        assert_whole(usage)

    def test_a_stream_gives_the_same_answer_piece_by_piece(self, service: Service, sample: dict[str, Any]):
        whole = service.ask(QUESTION, mode="full")["answer"]
        *deltas, done = service.events(QUESTION, mode="full")

        assert {name for name, _ in deltas} == {"delta"}
        assert done[0] == "done"
        assert "".join(value["text"] for _, value in deltas) == done[1]["answer"] == whole

    def test_full_mode_stitches_nothing(self, service: Service, sample: dict[str, Any]):
        usage = service.ask(QUESTION, mode="full")["usage"]

        assert (usage["stitched"], usage["recomputed"]) == (0, 0)
        assert_whole(usage)

    def test_recomputing_everything_says_what_full_prefill_says(self, service: Service, sample: dict[str, Any]):
        full, recomputed = service.ask(QUESTION, mode="full"), service.ask(QUESTION, recompute_ratio=1.0)

        assert recomputed["answer"] == full["answer"]
        origins = {span["origin"] for span in recomputed["prompt_spans"] if span["kind"] == "passage"}
        assert origins == {"recomputed"}

    def test_a_policy_and_a_ratio_are_those_of_the_question(self, service: Service, sample: dict[str, Any]):
        """Each policy's share is held in tests/engine/test_recompute.py. This one needs vectors of the question."""
        usage = service.ask("Which of the films was made first?", policy="initial", recompute_ratio=0.5)["usage"]

        assert usage["stitched"] > 0
        assert usage["recomputed"] > usage["stitched"] / 2
        assert_whole(usage)

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_question_longer_than_the_window_is_told_to_be_shorter(
        self, service: Service, sample: dict[str, Any], stream: bool
    ):
        """A letter that is in no vocabulary takes several tokens."""
        response = service.client.post("/v1/ask", json={"question": "ꙮ" * 9000, "stream": stream})

        assert_problem(response, 413, "shorten the question")

    def test_kv_files_that_vanish_cost_time_and_change_nothing(
        self, service: Service, sample: dict[str, Any], data_dir: Path
    ):
        before = service.ask(QUESTION, mode="full")
        with without_kv(data_dir):
            fresh, again = service.ask(QUESTION), service.ask(QUESTION)

        assert before["answer"] == fresh["answer"] == again["answer"]
        assert fresh["usage"]["failed_chunks"] >= len(fresh["passages"])
        assert fresh["usage"]["stitched"] == 0
        assert_whole(fresh["usage"])
        assert service.ask(QUESTION)["usage"]["failed_chunks"] == 0


class TestStopping:
    def test_sigterm_stops_everything_and_leaves_no_child(self, restarted: Stopped):
        assert (restarted.code, restarted.left) == (128 + signal.SIGTERM, [])

    def test_documents_are_answered_from_after_a_restart_without_prefill(
        self, service: Service, sample: dict[str, Any], restarted: Stopped
    ):
        assert service.document(sample["films.md"]["id"]) == sample["films.md"]
        answer = service.ask(QUESTION, policy="none")

        assert answer["usage"]["failed_chunks"] == 0
        assert answer["usage"]["stitched"] > answer["usage"]["computed"]


class TestKilled:
    """The last tests: they end the service."""

    def test_an_engine_that_is_killed_is_started_again_and_the_questions_in_it_are_told_or_answered(
        self, service: Service, sample: dict[str, Any], restarted: Stopped
    ):
        whole = service.ask(QUESTION, mode="full")["answer"]
        core = _engine_of(service)
        old, left, server = [core, *core.children(recursive=True)], shared_memory_of(core), core.ppid()

        body = {"question": QUESTION, "mode": "full"}
        with ThreadPoolExecutor() as pool, service.client.stream("POST", "/v1/ask", json=LONG_STREAM) as begun:
            pieces = begun.iter_text()
            assert "event: delta" in next(pieces)
            core.kill()
            asked = pool.submit(service.client.post, "/v1/ask", json=body)
            told = "".join(pieces)
            assert "event: error" in told
            assert "ask again" in told
            assert "trace" not in told
            service.wait_until(lambda: "starting again after its process died" in engine_of_readyz(service))
            service.wait_ready()
            if asked.result().status_code == 200:
                assert asked.result().json()["answer"].startswith(whole)
            else:
                assert_problem(asked.result(), 503, "ask again")
                assert int(asked.result().headers["Retry-After"]) > 5

        assert service.ask(QUESTION, mode="full")["answer"] == whole
        assert "ragkv_engine_restarts_total 1.0" in service.client.get("/metrics").text
        assert server != service.family()[0].pid
        assert _engine_of(service).ppid() == server, "both are forks of one process"
        assert [process for process in old if process.is_running()] == []
        assert [name for name in left if Path(name).exists()] == []

    @pytest.mark.timeout(300 * KILLS)
    @pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=pytest.mark.long)])
    def test_an_engine_that_is_killed_at_any_moment_of_an_answer_gives_no_wrong_one(
        self, service: Service, sample: dict[str, Any], restarted: Stopped, kills: int
    ):
        """The text before is the beginning of the right answer; or all of it, if another engine could be asked."""
        whole, ended = _said(service)
        assert ended == "done"
        began = time.monotonic()
        assert _all_said(service) == [(whole, "done")] * CLIENTS
        seconds, restarts, moments = time.monotonic() - began, _restarts(service), random.Random(kills)
        for number in range(kills):
            core, moment = _engine_of(service), moments.uniform(0, seconds)
            old, left = [core, *core.children(recursive=True)], shared_memory_of(core)
            with ThreadPoolExecutor() as pool:
                asked = pool.submit(_all_said, service)
                time.sleep(moment)
                core.kill()
                killed = time.monotonic()
                service.wait_until(lambda number=number: _restarts(service) == restarts + number + 1)
                service.wait_ready()
                ready = time.monotonic() - killed
            ends = ", ".join(f"{ended} after {len(delta)}" for delta, ended in asked.result())
            print(
                f"kill {number}, {moment:.1f} of {seconds:.1f} s: {ends} of {len(whole)} characters; "
                f"ready after {ready:.0f} s"
            )
            for delta, ended in asked.result():
                assert whole == delta if ended == "done" else whole.startswith(delta), repr(delta)
            assert _said(service) == (whole, "done")
            assert [process for process in old if process.is_running()] == []
            assert [name for name in left if Path(name).exists()] == []

    def test_a_killed_service_leaves_neither_worker_nor_engine(self, service: Service, restarted: Stopped):
        """Its Redis stays, and is taken over by the next start."""
        family = service.family()
        redis = [process for process in family if "redis-server" in process.name()]
        family[0].kill()
        _, left = psutil.wait_procs([process for process in family if process not in redis], timeout=20)
        for process in redis:
            process.terminate()
        assert len(family) > 4
        assert [process.cmdline() for process in left if process.status() != psutil.STATUS_ZOMBIE] == []


def engine_of_readyz(service: Service) -> str:
    return str(service.client.get("/readyz").json()["engine"])


def _said(service: Service) -> tuple[str, str]:
    """The answer as far as it came, and how it ended: done, error, or 503."""
    response = service.client.post("/v1/ask", json=LONG_STREAM)
    if response.status_code == 503:
        return "", "503"
    *deltas, (ended, _) = events_of(response.text)
    return "".join(delta["text"] for _, delta in deltas), ended


def _all_said(service: Service) -> list[tuple[str, str]]:
    """What each of the clients was told, who ask at once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(_said, [service] * CLIENTS))


def _restarts(service: Service) -> float:
    return float(re.findall(r"^ragkv_engine_restarts_total (.*)", service.client.get("/metrics").text, re.MULTILINE)[0])


def shared_memory_of(process: psutil.Process) -> set[str]:
    """Files of it; none where vLLM's worker runs in its core's process."""
    lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if "/dev/shm/psm_" in line}


def found_in(answer: dict[str, Any]) -> set[str]:
    return {passage["document_id"] for passage in answer["passages"]}


def kv_files(data_dir: Path) -> set[str]:
    return {path.name for path in (data_dir / "kv").rglob("*.safetensors")}


@contextmanager
def without_kv(data_dir: Path) -> Iterator[None]:
    """Every KV file is away, and back afterwards."""
    kept = shutil.copytree(data_dir / "kv", data_dir.with_name("kept"))
    for path in (data_dir / "kv").rglob("*.safetensors"):
        path.unlink()
    try:
        yield
    finally:
        shutil.copytree(kept, data_dir / "kv", dirs_exist_ok=True)


def _engine_of(service: Service) -> psutil.Process | None:
    return next((process for process in service.family() if "EngineCore" in command_line(process)), None)
