"""The `ragkv` command as a user types it."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import Qwen3NextConfig

from tests.e2e.service import RAGKV, command_line, environment
from tests.support.over_http import ADA

HARBOUR = "# Harbour\n\nThe harbour of Zembla was dug in 1630. Its light was built by Ragnhild Oste.\n"
USAGE = {"prompt", "cached", "stitched", "recomputed", "computed", "completion", "failed_chunks"}
BEFORE_AN_ENGINE_S = 180
STOP_S = 60


def ragkv(environ: dict[str, str], *arguments: str, seconds: float = 300) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [RAGKV, *arguments], env=environ, capture_output=True, text=True, timeout=seconds, check=False
    )


def assert_one_line(finished: "subprocess.CompletedProcess[str]", *words: str) -> None:
    """It failed with one line that says what to do, and nothing else."""
    assert finished.returncode == 1
    assert finished.stdout == ""
    (line,) = finished.stderr.splitlines()
    assert line.startswith("ragkv: ")
    for word in words:
        assert word in line


@pytest.fixture
def environ(tmp_path: Path, language_model: Path) -> dict[str, str]:
    """Settings over a data folder that is not there yet."""
    return environment(tmp_path / "data", language_model)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files that can be read, two that cannot, one hidden."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "deep").mkdir()
    (folder / "ada.md").write_bytes(ADA)
    (folder / "deep" / "harbour.md").write_text(HARBOUR)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (folder / "blank.txt").write_text("")
    (folder / ".hidden.md").write_text("# Hidden\n\nNobody reads this.\n")
    return folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, language_model: Path) -> dict[str, str]:
    """Settings over a data folder that the tests of reading and asking share."""
    return environment(tmp_path_factory.mktemp("cli") / "data", language_model)


@pytest.fixture(scope="module")
def ingested(shared: dict[str, str], corpus: Path) -> "subprocess.CompletedProcess[str]":
    """The corpus was read once."""
    return ragkv(shared, "ingest", str(corpus))


class TestRefusals:
    def test_asking_an_empty_collection_fails_before_an_engine_starts(self, environ: dict[str, str]):
        finished = ragkv(environ, "ask", "Who?", seconds=BEFORE_AN_ENGINE_S)

        assert_one_line(finished, "upload")

    @pytest.mark.parametrize("command", [("ask", "Who?"), ("ingest", __file__)])
    def test_a_folder_without_a_model_is_named(self, environ: dict[str, str], tmp_path: Path, command: tuple[str, ...]):
        empty = tmp_path / "empty"
        empty.mkdir()

        assert_one_line(ragkv(environ | {"RAGKV_MODEL": str(empty)}, *command), str(empty), "not a model folder")

    @pytest.mark.parametrize("command", [("status",), ("serve",)])
    def test_an_unknown_setting_names_the_nearest(self, environ: dict[str, str], command: tuple[str, ...]):
        finished = ragkv(environ | {"RAGKV_CHUNK_TOKEN": "512"}, *command)

        assert_one_line(finished, "RAGKV_CHUNK_TOKEN", "RAGKV_CHUNK_TOKENS")

    def test_a_model_that_cannot_be_stitched_is_refused_with_the_reason(
        self, environ: dict[str, str], tmp_path: Path, corpus: Path
    ):
        """Before anything is read or kept."""
        Qwen3NextConfig().save_pretrained(tmp_path / "hybrid")
        refused = ragkv(environ | {"RAGKV_MODEL": str(tmp_path / "hybrid")}, "ingest", str(corpus))
        assert_one_line(refused, "qwen3_next", "layers other than attention", "docs/MODELS.md")


class TestIngestAndAsk:
    def test_files_that_cannot_be_read_are_named_and_the_others_are_read(
        self, shared: dict[str, str], ingested: "subprocess.CompletedProcess[str]"
    ):
        assert ingested.returncode == 1
        assert "2 ingested, 2 failed" in ingested.stderr
        assert "picture.png: it is an image" in ingested.stderr
        assert "blank.txt: the file is empty" in ingested.stderr
        assert status(shared)["documents"] == {"failed": 1, "ready": 2}

    def test_reading_again_computes_nothing(
        self, shared: dict[str, str], corpus: Path, ingested: "subprocess.CompletedProcess[str]"
    ):
        before = kv_files(shared)
        again = ragkv(shared, "ingest", str(corpus / "ada.md"), str(corpus / "deep"))

        assert again.returncode == 0
        assert "0 ingested, 2 already known, 0 failed" in again.stderr
        assert kv_files(shared) == before

    def test_status_counts_what_was_read(self, shared: dict[str, str], ingested: "subprocess.CompletedProcess[str]"):
        facts = status(shared)

        assert facts["chunks"] == facts["kv_files"] == len(kv_files(shared)) - 1  # the prefix has a file, too
        assert facts["tokens"] > 0
        assert facts["kv_bytes"] > 0
        assert facts["data_dir"] == shared["RAGKV_DATA_DIR"]
        assert facts["sign_in"] == "by API key"

    def test_an_answer_as_json_has_every_field(
        self, shared: dict[str, str], ingested: "subprocess.CompletedProcess[str]"
    ):
        finished = ragkv(shared, "ask", "Who wrote the first program?", "--policy", "none", "--json")

        assert finished.returncode == 0, finished.stderr
        assert "Redis" not in finished.stderr
        answer = json.loads(finished.stdout)
        keys = {
            "id",
            "answer",
            "finish_reason",
            "citations",
            "passages",
            "timings",
            "usage",
            "kv",
            "prompt_spans",
            "cached_answer",
            "omitted_passages",
            "warnings",
        }
        assert answer.keys() == keys
        assert answer["usage"].keys() == USAGE
        assert answer["usage"]["stitched"] > 0
        assert answer["passages"][-1]["text"]
        assert answer["answer"]

    @pytest.mark.long
    def test_sigterm_while_the_engine_starts_stops_everything(
        self, shared: dict[str, str], ingested: "subprocess.CompletedProcess[str]"
    ):
        with running(shared, "ask", "Who wrote the first program?") as asking:
            engine = process_named(asking, "EngineCore")
            asking.terminate()

            assert asking.wait(STOP_S) == 128 + signal.SIGTERM
            assert_ended(engine)


@contextmanager
def running(environ: dict[str, str], *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """`ragkv` in the background. It and what it started are gone afterwards, whatever happened."""
    with subprocess.Popen(
        [RAGKV, *arguments], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            for one in family_of(process.pid):
                one.kill()


def family_of(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def process_named(parent: "subprocess.Popen[bytes]", name: str) -> psutil.Process:
    """A process that `parent` started, as soon as it is there."""
    deadline = time.monotonic() + BEFORE_AN_ENGINE_S
    while time.monotonic() < deadline:
        for process in family_of(parent.pid):
            if name in command_line(process):
                return process
        time.sleep(0.1)
    raise AssertionError(f"no process {name} within {BEFORE_AN_ENGINE_S} s")


def assert_ended(process: psutil.Process) -> None:
    """Gone, or no more than an entry in the table of processes."""
    psutil.wait_procs([process], timeout=5)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def status(environ: dict[str, str]) -> dict[str, Any]:
    finished = ragkv(environ, "status", "--json")
    assert finished.returncode == 0, finished.stderr
    return dict(json.loads(finished.stdout))


def kv_files(environ: dict[str, str]) -> dict[str, int]:
    """Names and times of writing."""
    files = (Path(environ["RAGKV_DATA_DIR"]) / "kv").rglob("*.safetensors")
    return {path.name: path.stat().st_mtime_ns for path in files}
