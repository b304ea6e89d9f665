"""The web server, and how it stops: it finishes what it is doing, for a while."""

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
"""How long a connection may lie idle: longer than proxies keep theirs, so that it is they who close them."""
CUT_S = 1
"""What requests get once they are cut off, to end in good order."""


DESCRIPTORS = 65536


def raise_descriptor_limit() -> None:
    """As many open files and connections as the system lets this process have, at most DESCRIPTORS."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft not in (resource.RLIM_INFINITY, wanted) and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Helper(Protocol):
    """A process that ends with the server. `stop` waits for it, `kill` does not."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Server(uvicorn.Server):
    """Stops in two steps. At the first signal nothing new is answered, the helpers are told to stop, and what is being
    answered goes on, at most `grace_s` seconds. At the next signal, or when that time is over, the rest is cut off.

    Until then the server listens: /readyz says 503, and so does whatever is asked.
    """

    def __init__(
        self, app: Litestar, draining: Draining, grace_s: float, *helpers: Helper, max_connections: int | None = None
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
        self._helpers = helpers
        self._impatient = False
        self._stopping: list[asyncio.Task[None]] = []

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Returns when it has stopped."""
        log = logging.getLogger("uvicorn.error")
        log.addFilter(self._is_worth_saying)
        try:
            super().run(sockets)
        finally:
            log.removeFilter(self._is_worth_saying)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
        if self.should_exit:
            self._impatient = True
        else:
            super().handle_exit(sig, frame)

    def _is_worth_saying(self, record: logging.LogRecord) -> bool:
        """Not that a request was cut off by the stop, with a trace: the request's own line says that it has ended."""
        error = record.exc_info[1] if record.exc_info else None
        return not (self._draining.started and isinstance(error, asyncio.CancelledError))

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to stop listening and cut off what still runs."""
        if not await super().on_tick(counter):
            return False
        if not self._draining.started:
            self._draining.start()
            self._stopping = [asyncio.create_task(asyncio.to_thread(helper.stop)) for helper in self._helpers]
        if self._impatient:
            for helper in self._helpers:
                helper.kill()
        return self._impatient or self._draining.in_flight == 0 or self._draining.seconds >= self._grace_s
