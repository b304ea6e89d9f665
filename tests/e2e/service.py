"""ragkv as its users run it: a child process, settings in its environment, HTTP on a port."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.support.over_http import events_of

RAGKV = str(Path(sys.executable).with_name("ragkv"))
SAMPLE = Path(__file__).parents[2] / "docs" / "sample" / "documents"
START_S = 600
STOP_S = 60


def environment(data_dir: Path, model: Path | str, **settings: object) -> dict[str, str]:
    """What a child process gets: small chunks, no settings of the developer's own.

    In float32 prompts that are equal but for rounding give the same words. Compiled modules are kept: a dozen
    processes in a row would spend half their time on compiling them again.
    """
    ours = {"data_dir": data_dir, "model": model, "chunk_tokens": 128, "kv_cache_gib": 1, "dtype": "float32"}
    unwanted = ("RAGKV_", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    given = {f"RAGKV_{name.upper()}": str(value) for name, value in (ours | settings).items()}
    return inherited | {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"} | given


def command_line(process: psutil.Process) -> str:
    """Empty for one that has ended: a process whose parent never asks after it stays in the table."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


class Service:
    """`ragkv serve` on a port. It may be started again after it was stopped."""

    def __init__(self, environ: Mapping[str, str], port: int, log: Path, *options: str) -> None:
        self._environ = dict(environ)
        self._command = [RAGKV, "serve", "--port", str(port), *options]
        self.log = log
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(self._command, env=self._environ, stdout=output, stderr=output)

    def family(self) -> list[psutil.Process]:
        """The process and all that it started."""
        assert self._process is not None
        try:
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def terminate(self) -> "Stopped":
        """SIGTERM to the process alone, as a supervisor sends it."""
        assert self._process is not None
        family, began = self.family(), time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_S)
        seconds = time.monotonic() - began
        _, left = psutil.wait_procs(family[1:], timeout=2)
        return Stopped(code, seconds, [line for line in map(command_line, left) if line])

    def clear_away(self) -> None:
        """Nothing of it is left when this returns, whatever state it was in."""
        family = self.family()
        for process in family[:1]:
            process.terminate()
        _, left = psutil.wait_procs(family, timeout=STOP_S)
        for process in left:
            process.kill()

    def wait_until(self, condition: Callable[[], bool], seconds: float = START_S) -> None:
        """Raises with the log's end if the process dies or it takes too long."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._process.poll() is None, f"it ended:\n{self.last_words()}"
            assert time.monotonic() < deadline, f"it took too long:\n{self.last_words()}"
            time.sleep(0.1)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def answers(self, path: str, status: int = 200, timeout: float = 120) -> bool:
        try:
            return self.client.get(path, timeout=timeout).status_code == status
        except httpx.ConnectError:
            return False

    def wait_ready(self) -> None:
        self.wait_until(lambda: self.answers("/readyz"))

    def upload(self, name: str, body: bytes) -> httpx.Response:
        return self.client.post("/v1/documents", files={"file": (name, body)})

    def read(self, name: str, body: bytes) -> dict[str, Any]:
        """Upload and wait for the end of it: a document that is ready or failed."""
        return self.finished(self.upload(name, body).json()["id"])

    def finished(self, document_id: str) -> dict[str, Any]:
        self.wait_until(lambda: self.document(document_id)["status"] in {"ready", "failed"})
        return self.document(document_id)

    def document(self, document_id: str) -> dict[str, Any]:
        return dict(self.client.get(f"/v1/documents/{document_id}").json())

    def ask(self, question: str, **options: object) -> dict[str, Any]:
        response = self.client.post("/v1/ask", json={"question": question, "max_tokens": 16} | options)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def events(self, question: str, **options: object) -> list[tuple[str, Any]]:
        body = {"question": question, "max_tokens": 16, "stream": True} | options
        response = self.client.post("/v1/ask", json=body)
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(events_of(response.text))


@dataclass(frozen=True)
class Stopped:
    """How the service ended. `left` are command lines of children that outlived it."""

    code: int
    seconds: float
    left: list[str]


@contextmanager
def started(environ: Mapping[str, str], port: int, log: Path, *options: str) -> Iterator[Service]:
    """A service that is starting, and gone afterwards."""
    service = Service(environ, port, log, *options)
    service.start()
    try:
        yield service
    finally:
        service.clear_away()
        service.client.close()
