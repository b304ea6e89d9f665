"""The service over HTTP, for tests: clients of it, and what they look at."""

import asyncio
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from litestar import Litestar
from litestar.testing import TestClient

from api.app import create_app
from api.http.draining import Draining
from api.http.server import Server, listen
from ragkv.service.parts import Parts

ADA = b"# Ada Lovelace\n\nAda Lovelace wrote the first program, for the analytical engine of Charles Babbage.\n"
HERE = "http://127.0.0.1"
STOPS_WITHIN_S = 60.0
"""Then what it waits for is printed."""

Client = TestClient[Litestar]


@contextmanager
def client_of(parts: Parts) -> Iterator[Client]:
    """A client on this machine, once the service is ready."""
    with TestClient(create_app(parts), base_url=HERE) as client:
        wait_until_ready(client)
        tasks = client.blocking_portal.call(_loops_tasks)
        yield client
        watch = threading.Timer(STOPS_WITHIN_S, lambda: print(*tasks(), sep="\n", file=sys.__stderr__))
        watch.daemon = True
        watch.start()
    watch.cancel()


async def _loops_tasks() -> Callable[[], set[asyncio.Task[Any]]]:
    """What gives the tasks of this event loop, from any thread."""
    return partial(asyncio.all_tasks, asyncio.get_running_loop())


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel gives to connections: none takes it meanwhile."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, first_given)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def upload(client: httpx.Client, body: bytes = ADA, name: str = "ada.md", **options: Any) -> httpx.Response:
    return client.post("/v1/documents", files={"file": (name, body)}, **options)


def assert_problem(response: httpx.Response, status: int, detail: str = "") -> None:
    """RFC 9457."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert detail in json.dumps(problem)


@contextmanager
def serving(parts: Parts, **options: Any) -> Iterator[httpx.Client]:
    """The app under its web server, and a client of it. `options` are those of `create_app`."""
    listener = listen("127.0.0.1", 0)
    draining = Draining()
    server = Server(create_app(parts, draining, **options), draining, grace_s=1)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as client:
            wait_until_ready(client)
            yield client
    finally:
        server.should_exit = True
        thread.join()


def opened(served: httpx.Client, sent: bytes) -> socket.socket:
    """A connection to the service over which these bytes were sent."""
    connection = socket.create_connection((served.base_url.host, served.base_url.port), timeout=10)
    connection.sendall(sent)
    return connection


def answer_to(served: httpx.Client, sent: bytes) -> bytes:
    """All that comes until the server closes the connection."""
    with opened(served, sent) as connection:
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


def events_of(text: str) -> Iterator[tuple[str, Any]]:
    """(event, data) of a stream whose data is JSON."""
    for fields in event_fields(text):
        yield fields["event"], json.loads(fields["data"])


def event_fields(text: str) -> Iterator[dict[str, str]]:
    """The fields of each server-sent event of a stream, without its comments."""
    for block in text.replace("\r\n", "\n").strip().split("\n\n"):
        if fields := dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")):
            yield fields


def wait_until_ready(client: httpx.Client) -> None:
    wait_until(lambda: client.get("/readyz").status_code == 200)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)
