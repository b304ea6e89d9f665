"""Graceful shutdown: finish running requests, end idle streams, refuse new ones."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from ragkv.errors import Unavailable
from ragkv.observe import metrics

SERVED_WHILE_DRAINING = "served_while_draining"
"""Option of handlers that still answer during shutdown."""
STOPPING = "the service is shutting down: try again in a moment"


class Draining:
    """State of the shutdown: whether it has started, and the number of requests still in flight."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._started_at: float | None = None
        self._event = asyncio.Event()

    @property
    def started(self) -> bool:
        return self._started_at is not None

    @property
    def seconds(self) -> float:
        """Time since the start; 0 before."""
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    def start(self) -> None:
        """Refuse requests from now on. In the event loop only."""
        self._started_at = time.monotonic()
        self._event.set()

    async def wait_started(self, seconds: float) -> bool:
        """Wait for the start, at most `seconds`. Returns whether it has started."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request as in flight for the length of the block."""
        self.in_flight += 1
        metrics.in_flight.inc()
        try:
            yield
        finally:
            self.in_flight -= 1
            metrics.in_flight.dec()


class RefuseWhileDraining(ASGIMiddleware):
    """Answers new requests with 503 and Retry-After, so that clients and proxies retry elsewhere; and those that the
    server cuts off before their response has begun. Streams say so themselves."""

    scopes = (ScopeType.HTTP,)
    exclude_opt_key = SERVED_WHILE_DRAINING

    def __init__(self, draining: Draining) -> None:
        self._draining = draining

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        if self._draining.started:
            raise Unavailable(STOPPING)
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await next_app(scope, receive, noting)
        except asyncio.CancelledError:
            if has_begun or not self._draining.started:
                raise
            raise Unavailable(STOPPING) from None
