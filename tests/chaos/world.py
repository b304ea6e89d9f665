"""A whole service of killable parts, clients that use it, and what must hold whenever it has come to rest."""

import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import pgserver
from sqlalchemy import func, select, update

from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.checks.check import WHILE_STOPPED
from ragkv.service.checks.fsck import examine, repair
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.chaos.clock import new_clock
from tests.chaos.processes import UNKNOWN, start
from tests.support.over_http import free_port
from tests.support.qdrant_server import QdrantServer

SETTLE_S = 240.0
"""Generous: a machine that is shared by other tests takes its time."""
FILLER = "It stands in a hall of the works, and nobody has seen it move since the last engineer left the town. "


@dataclass
class Books:
    """What clients were told, and what they may be told."""

    accepted: dict[str, str] = field(default_factory=dict)
    """Documents by id, with the name that each is about."""
    codes: dict[str, set[str]] = field(default_factory=dict)
    """Codes by name that are right: two while a document is being replaced."""
    newest: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    """Names whose document was ready in the last check and has not been replaced since: "unknown" is wrong."""
    answers: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


class World:
    """One service: API, worker, Redis, a database and perhaps a Qdrant server, each of which may be killed."""

    def __init__(
        self, settings: Settings, parts: Parts, seed: int, database: "Postgres | None", qdrant: QdrantServer | None
    ) -> None:
        self.random, self.clients = random.Random(seed), random.Random(seed + 1)
        self.settings, self.parts = settings, parts
        self.postgres, self.qdrant = database, qdrant
        self.books = Books()
        self.redis = EmbeddedRedis(settings)
        self.clocks = defaultdict(new_clock)
        self._port = free_port()
        self._numbers = iter(range(10**6))
        self._processes: dict[str, ForkServerProcess] = {}
        self._dead: list[str] = []
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=30)

    def open(self) -> None:
        self.redis.start()
        for name in ("run_api", "run_worker"):
            self.launch(name)
        self.wait_until(self.is_up)

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        self.client.close()
        self.redis.stop()

    def launch(self, name: str, target: str | None = None) -> None:
        """Start a process of this name, which runs the function of `tests/chaos/processes.py` of that name or
        `target`."""
        self._processes[name] = start(target or name, _environment(self.settings), self._port, self.clocks[name])

    def kill(self, name: str) -> None:
        """SIGKILL, to it and to the processes it started."""
        process = self._processes.pop(name)
        self._dead.append(f"%:{process.pid}:%")
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()
        process.join()

    def kill_redis(self) -> None:
        process = self.redis._process
        assert process is not None and self.redis._lock is not None
        process.kill()
        process.wait()
        self.redis._lock.close()

    def start_redis(self) -> None:
        self.redis = EmbeddedRedis(self.settings)
        self.redis.start()

    def is_up(self) -> bool:
        with suppress(httpx.HTTPError):
            return self.client.get("/readyz").status_code == 200
        return False

    def wait_until(self, condition: Callable[[], bool], seconds: float = SETTLE_S) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it does not come to rest: {self.states()}\n{self.last_words()}"
            time.sleep(0.1)

    def last_words(self) -> str:
        """The end of what the processes wrote."""
        return (self.settings.data_dir / "chaos.log").read_text(errors="replace")[-3000:]

    def states(self) -> dict[str, object]:
        with self.parts.database.reading() as session:
            rows = session.execute(
                select(DocumentRow.id, DocumentRow.status, DocumentRow.error, DocumentRow.lease_owner)
            )
            return {
                row.id[:6]: (str(row.status), row.error, row.lease_owner) for row in rows if row.status != Status.READY
            }

    # -- what clients do ------------------------------------------------------------------------------------------

    def upload(self) -> None:
        """A document of one fact and some filler, sent until it is accepted."""
        name, code = f"engine-{next(self._numbers)}", str(self.clients.randrange(10**6))
        body = _body(name, code, self.clients.randrange(1, 12))
        self.books.codes[name], self.books.newest[name] = {code}, code
        response = self._insist("POST", "/v1/documents", {"file": (f"{name}.md", body)})
        if response is not None:
            self.books.accepted[str(response.json()["id"])] = name

    def replace(self, document_id: str) -> None:
        name = self.books.accepted[document_id]
        self.books.known.discard(name)
        code = str(self.clients.randrange(10**6))
        self.books.codes[name].add(code)
        body = _body(name, code, self.clients.randrange(1, 12))
        self._insist("PUT", f"/v1/documents/{document_id}", {"file": (f"{name}.md", body)})
        self.books.newest[name] = code

    def delete(self, document_id: str) -> None:
        self.books.deleted.add(document_id)
        self._insist("DELETE", f"/v1/documents/{document_id}", None, gone=404)

    def ask(self, name: str) -> bool:
        """An answer is right, says that nothing is known yet, or does not come. Returns whether it came."""
        try:
            response = self.client.post("/v1/ask", json={"question": f"What is the code of {name}?", "top_k": 4})
        except httpx.HTTPError:
            self.books.refused += 1
            return False
        nothing_to_search = response.status_code == 200 and response.json()["no_passages"] and not self.books.known
        if nothing_to_search or response.status_code != 200:
            assert nothing_to_search or response.status_code >= 500, response.text
            self.books.refused += 1
            return False
        self.books.answers += 1
        answer = str(response.json()["answer"])
        right = self.books.codes[name] | (set() if name in self.books.known else {UNKNOWN})
        if answer not in right:
            self.books.wrong.append(f"{name}: {answer}, not {right}")
        return True

    def _insist(self, method: str, path: str, files: object, gone: int | None = None) -> httpx.Response | None:
        """Send it until the service takes it, as a client does."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError):
                response = self.client.request(method, path, files=files)
                if response.is_success:
                    return response
                if response.status_code == gone:
                    return None
                assert response.status_code >= 500, response.text
            time.sleep(0.1)
        raise AssertionError(f"{method} {path} was never accepted")

    # -- what must hold -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until nothing is left to do. Leases of the dead run out at once, not in a minute."""
        self.wait_until(self.is_up)
        with self.parts.database.writing() as session:
            for owner in self._dead:
                held = DocumentRow.lease_owner.like(owner)
                session.execute(update(DocumentRow).where(held).values(lease_owner=None, lease_until=None))
        self.wait_until(self._is_at_rest)

    def check(self) -> list[str]:
        """Everything that must hold. Returns the names of what `fsck` had to mend."""
        with self.parts.database.reading() as session:
            rows = {row.id: row for row in session.scalars(select(DocumentRow))}
            twice = session.execute(
                select(DocumentRow.sha256).group_by(DocumentRow.sha256).having(func.count() > 1)
            ).all()
        lost = self.books.accepted.keys() - self.books.deleted - rows.keys()
        assert not lost, f"accepted and lost: {lost}"
        assert not self.books.deleted & rows.keys(), "deleted and there again"
        assert not twice, "one document twice"
        assert not self.states(), "no fault of a server is a document's own"
        mended = [found.check for found in repair(WHILE_STOPPED, self.parts) if found.found]
        self.wait_until(self._is_at_rest)
        left = {found.check: found.found for found in examine(WHILE_STOPPED, self.parts) if found.found}
        assert not left, left
        self._check_answers(rows)
        return mended

    def _check_answers(self, rows: dict[str, DocumentRow]) -> None:
        """Every document answers, and right."""
        ready = [i for i in self.books.accepted if i in rows]
        assert ready, "clients left no document"
        asked = ready if len(ready) < 6 else self.random.sample(ready, 6)
        for document_id in asked:
            name = self.books.accepted[document_id]
            body = {"question": f"What is the code of {name}?", "top_k": 4}
            response = self.client.post("/v1/ask", json=body, timeout=SETTLE_S)
            assert response.status_code == 200, response.text
            assert response.json()["answer"] == self.books.newest[name], (name, response.json()["answer"])
            self.books.answers += 1
        assert not self.books.wrong, self.books.wrong
        self.books.known = {self.books.accepted[document_id] for document_id in ready}

    def _is_at_rest(self) -> bool:
        with self.parts.database.reading() as session:
            open_ = (Status.READY, Status.FAILED)
            return not session.scalar(
                select(func.count()).select_from(DocumentRow).where(DocumentRow.status.not_in(open_))
            )


class Postgres:
    """A PostgreSQL server of one's own, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._server = pgserver.get_server(folder)
        self.url = self._server.get_uri()

    def kill(self) -> None:
        """SIGKILL. Its file of process ids goes too: a dead process that nobody asked after would pass for running."""
        pid = self._server.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        (self._server.pgdata / "postmaster.pid").unlink(missing_ok=True)

    def start(self) -> None:
        for _ in range(20):  # the processes of the dead one end on their own
            with suppress(Exception):
                self._server.ensure_postgres_running()
                self._server.psql("SELECT 1")
                return
            time.sleep(0.5)
        raise AssertionError("PostgreSQL does not start again")

    def cut(self) -> None:
        """End every other connection, whatever it is doing."""
        self._server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    def stop(self) -> None:
        self._server.cleanup()


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[None]:
    """Runs until the block has ended and the work in hand is done; what it raises is raised here."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


def _body(name: str, code: str, sentences: int) -> bytes:
    return f"# The engine {name}\n\nThe code of {name} is {code}.\n\n{FILLER * sentences}\n".encode()


def _environment(settings: Settings) -> dict[str, str]:
    given = {
        "data_dir": settings.data_dir, "model": settings.model, "chunk_tokens": settings.chunk_tokens,
        "database_url": settings.database_url, "qdrant_url": settings.qdrant_url, "requests_per_minute": 0,
        "log_level": "error", "top_k": settings.top_k,
    }  # fmt: skip
    ours = {f"RAGKV_{name.upper()}": str(value) for name, value in given.items() if value is not None}
    return ours | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
