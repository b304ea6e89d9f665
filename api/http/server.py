"""The web server. On shutdown it finishes running requests within a grace period."""

import asyncio
import logging
import resource
import socket
from types import FrameType
from typing import Protocol

import uvicorn
from litestar import Litestar

from api.http.connections import TimedProtocol
from api.http.draining import Draining

KEEP_ALIVE_S = 75
"""How long a connection may lie idle: longer than proxies keep theirs, so that proxies close them."""
CUT_S = 1
"""How long requests that are cut off have to clean up."""
DESCRIPTORS = 65536


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files and connections to the hard limit, at most DESCRIPTORS."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft not in (resource.RLIM_INFINITY, wanted) and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class ChildProcess(Protocol):
    """A process that stops with the server. `stop` waits for it, `kill` does not."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Server(uvicorn.Server):
    """uvicorn's server, which stops in two steps. At the first signal new requests are refused, child processes are
    told to stop, and running requests go on, at most `grace_s` seconds. At the next signal, or after that time, they
    are cut off.

    Until then the server listens: /readyz and all other requests get 503.
    """

    def __init__(
        self,
        app: Litestar,
        draining: Draining,
        grace_s: float,
        *children: ChildProcess,
        max_connections: int | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            http=TimedProtocol,
            ws="none",
            limit_concurrency=max_connections or None,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CUT_S,
        )
        super().__init__(config)
        self._draining = draining
        self._grace_s = grace_s
        self._children = children
        self._impatient = False
        self._stopping: list[asyncio.Task[None]] = []

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until stopped."""
        log = logging.getLogger("uvicorn.error")
        log.addFilter(self._is_worth_logging)
        try:
            super().run(sockets)
        finally:
            log.removeFilter(self._is_worth_logging)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: the first stops the server gracefully, the second at once."""
        if self.should_exit:
            self._impatient = True
        else:
            super().handle_exit(sig, frame)

    def _is_worth_logging(self, record: logging.LogRecord) -> bool:
        """False for the trace of a request that was cut off by the shutdown: its access line states that it ended."""
        error = record.exc_info[1] if record.exc_info else None
        return not (self._draining.started and isinstance(error, asyncio.CancelledError))

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second. Returns whether to stop listening and cut off what still runs."""
        if not await super().on_tick(counter):
            return False
        if not self._draining.started:
            self._draining.start()
            self._stopping = [asyncio.create_task(asyncio.to_thread(child.stop)) for child in self._children]
        if self._impatient:
            for child in self._children:
                child.kill()
        return self._impatient or self._draining.in_flight == 0 or self._draining.seconds >= self._grace_s
