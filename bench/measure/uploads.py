"""Many documents by many clients while a process is killed every few seconds: each ready, none lost, none twice.

`make soak`, or `python -m bench.measure.uploads --documents 50 --kill-every 15` for a short look. The service over
HTTP, Redis, the database and the worker are real. With `--kill engine` the engine is too, and is killed in the worker's
place. Exits with 1 unless every document is ready.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx
import psutil
from sqlalchemy import func, select

from api.worker_process import WorkerProcess
from ragkv.engine.protocol import Engine
from ragkv.ids import utc_now
from ragkv.models import model_folder
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import ChunkRow, DocumentRow, JobRow
from ragkv.service.checks import leftovers
from ragkv.service.parts import Parts
from ragkv.settings import PREFIX, Settings
from tests.conftest import CACHE
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import serving

if TYPE_CHECKING:
    from ragkv.kv.store import KVStore


TRIES = 20
NEWS_EVERY_S = 10.0
ASKED = 20
"""Documents that are searched for by the one word that only they have."""
_say = partial(print, flush=True)


@dataclass
class Uploaded:
    """Ids by the number of the document, and what the clients were answered."""

    ids: dict[int, str] = field(default_factory=dict)
    answers: Counter[int | str] = field(default_factory=Counter)

    def note(self, number: int, document_id: str) -> None:
        before = self.ids.setdefault(number, document_id)
        assert before == document_id, f"document {number} has two ids"


class Beside(threading.Thread):
    """A thread that works until the block ends, which sets `stopping`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        self.join()


class Killer(Beside):
    """Kills a process without a warning, again and again. Whoever keeps it starts another."""

    def __init__(self, pid: Callable[[], int | None], every_s: float, most: int) -> None:
        """pid: of the process as it is now, None between two."""
        super().__init__()
        self._pid = pid
        self._every_s = every_s
        self._most = most
        self.kills = 0

    def run(self) -> None:
        while self.kills < self._most and not self.stopping.wait(self._every_s):
            with suppress(ProcessLookupError):  # between two
                if pid := self._pid():
                    os.kill(pid, signal.SIGKILL)
                    self.kills += 1


def _engine_pid() -> int | None:
    children = psutil.Process().children(recursive=True)
    return next((child.pid for child in children if "EngineCore" in "".join(child.cmdline())), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kill", choices=("worker", "engine"), default="worker")
    parser.add_argument("--kill-every", type=float, default=20.0, help="seconds")
    parser.add_argument("--kills", type=int, default=1_000_000, help="at most")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds until all must be ready")
    plan = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ragkv-soak-") as folder:
        model = str(model_folder(Settings(data_dir=CACHE)))
        settings = Settings(data_dir=Path(folder) / "data", model=model, requests_per_minute=0)
        began = time.monotonic()
        engine = None if plan.kill == "engine" else EchoEngine(settings)
        with ExitStack() as stack:
            parts, client, worker = stack.enter_context(running(settings, engine))
            pid = _engine_pid if plan.kill == "engine" else lambda: worker.pid
            killer = stack.enter_context(Killer(pid, plan.kill_every, plan.kills))
            uploaded = _upload(plan, client)
            _say(f"{len(uploaded.ids)} uploaded after {time.monotonic() - began:.0f} s: {dict(uploaded.answers)}")
            _wait(plan, parts.database, killer, began)
            faults = list(_faults(plan, uploaded, parts.database, parts.files, parts.kv_store, parts.prefixes, client))
            seconds = time.monotonic() - began
            _say(
                f"{_statuses(parts.database).get('ready', 0)} of {plan.documents} ready, {killer.kills} {plan.kill}s killed, {seconds:.0f} s"
            )
    for fault in faults:
        _say(f"FAULT: {fault}")
    sys.exit(bool(faults))


@contextmanager
def running(settings: Settings, engine: Engine | None) -> Iterator[tuple[Parts, httpx.Client, WorkerProcess]]:
    """The service on a port of its own, with one worker that is started again whenever it ends."""
    given = {
        f"{PREFIX}DATA_DIR": str(settings.data_dir),
        f"{PREFIX}MODEL": settings.model,
        f"{PREFIX}KV_WHEN": settings.kv_when,
        f"{PREFIX}LOG_LEVEL": "error",
    }
    with ExitStack() as stack:
        parts = stack.enter_context(closing(Parts(settings, engine)))
        parts.prepare()
        assert parts.answerer and parts.encoder, "loaded before anybody waits for them"
        redis = EmbeddedRedis(settings)
        redis.start()
        stack.callback(redis.stop)
        client = stack.enter_context(serving(parts))
        worker = WorkerProcess(os.environ | given)
        worker.start()
        stack.callback(worker.stop)
        yield parts, client, worker


def _upload(plan: argparse.Namespace, client: httpx.Client) -> Uploaded:
    """Each client uploads its share, and the document again whenever it is not told that it was accepted."""
    uploaded, lock = Uploaded(), threading.Lock()

    def upload(number: int) -> None:
        body = f"# Report {number}\n\nThe inspector of bridge {_word(number)} found {number} loose bolts.\n".encode()
        for _ in range(TRIES):
            answer: int | str
            document_id = None
            try:
                response = client.post("/v1/documents", files={"file": (f"{number}.md", body)}, timeout=60)
            except httpx.HTTPError as error:
                answer = type(error).__name__
            else:
                answer = response.status_code
                document_id = response.json()["id"] if response.is_success else None
            with lock:
                uploaded.answers[answer] += 1
                if document_id:
                    uploaded.note(number, document_id)
                    return
            time.sleep(0.5)

    with ThreadPoolExecutor(plan.clients) as pool:
        list(pool.map(upload, range(plan.documents)))
    return uploaded


def _word(number: int) -> str:
    """A word that no other document has."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:06d}") + "quay"


def _wait(plan: argparse.Namespace, database: Database, killer: Killer, began: float) -> None:
    """Until nothing is left to do, or the limit is reached."""
    while time.monotonic() - began < plan.limit:
        counts = _statuses(database)
        seconds = time.monotonic() - began
        _say(f"{seconds:5.0f} s  {killer.kills:3d} killed  " + "  ".join(f"{n} {name}" for name, n in counts.items()))
        if set(counts) <= {"ready", "failed"}:
            return
        time.sleep(NEWS_EVERY_S)


def _faults(
    plan: argparse.Namespace,
    uploaded: Uploaded,
    database: Database,
    files: FileStore,
    kv_store: "KVStore",
    prefixes: Callable[[], set[str]],
    client: httpx.Client,
) -> Iterator[str]:
    if (lost := plan.documents - len(uploaded.ids)) or len(set(uploaded.ids.values())) != len(uploaded.ids):
        yield f"{lost} were never accepted, {len(uploaded.ids) - len(set(uploaded.ids.values()))} ids are of two documents"
    with database.reading() as session:
        rows = session.execute(select(DocumentRow.id, DocumentRow.status, DocumentRow.error)).all()
        chunks = session.scalar(select(func.count()).select_from(ChunkRow))
        open_jobs = session.scalar(select(func.count()).select_from(JobRow).where(JobRow.status != JobStatus.DONE))
    yield from (f"{one} is {status.value}: {error}" for one, status, error in rows if status != "ready")
    if {one for one, *_ in rows} != set(uploaded.ids.values()):
        yield f"{len(rows)} rows for {len(uploaded.ids)} documents"
    if chunks != plan.documents:
        yield f"{chunks} chunks of {plan.documents} documents of one chunk each"
    if open_jobs:
        yield f"{open_jobs} jobs are not done"
    now = utc_now() + timedelta(seconds=1)
    misfits = {
        "files without rows": leftovers.unnamed_files(now, database, files),
        "rows without files": leftovers.missing_files(database, files),
        "KV entries without files": leftovers.missing_kv(database, kv_store),
        "KV files without entries": leftovers.unnamed_kv(now, database, files, kv_store, prefixes),
    }
    yield from (f"{len(items)} {what}" for what, items in misfits.items() if items)
    for number in range(0, plan.documents, max(plan.documents // ASKED, 1)):
        body = {"question": f"Who inspected bridge {_word(number)}?", "top_k": 3}
        passages = client.post("/v1/search", json=body, timeout=60).json()["passages"]
        found = [one["document_id"] for one in passages].count(uploaded.ids.get(number, ""))
        if found != 1:
            yield f"document {number} is found {found} times"


def _statuses(database: Database) -> dict[str, int]:
    with database.reading() as session:
        found = session.execute(select(DocumentRow.status, func.count()).group_by(DocumentRow.status)).all()
    return {status.value: number for status, number in found}


if __name__ == "__main__":
    main()
