"""How the service ends: what runs is finished, what waits is let go, and nothing new begins."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from ragkv.errors import Unavailable
from ragkv.observe import metrics

ALWAYS = "always"
"""A handler with this option answers while the service is ending."""


class Ending:
    """Whether the service is ending, and how many requests it still answers."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._began: float | None = None
        self._waiting = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        return self._began is not None

    @property
    def seconds(self) -> float:
        """Since it began; 0 before."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def begin(self) -> None:
        """From now on requests are refused. In the event loop only."""
        self._began = time.monotonic()
        self._waiting.set()

    async def begins_within(self, seconds: float) -> bool:
        """Wait so long, or until it begins: whether it has."""
        try:
            await asyncio.wait_for(self._waiting.wait(), seconds)
        except TimeoutError:
            return False
        return True

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A request is in flight."""
        self.in_flight += 1
        metrics.in_flight(1)
        try:
            yield
        finally:
            self.in_flight -= 1
            metrics.in_flight(-1)


class RefuseWhenEnding(ASGIMiddleware):
    """Nothing new begins: 503 with Retry-After, whereupon clients and proxies turn to another server."""

    scopes = (ScopeType.HTTP,)
    exclude_opt_key = ALWAYS

    def __init__(self, ending: Ending) -> None:
        self._ending = ending

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        if self._ending.has_begun:
            raise Unavailable("the service is shutting down: try again in a moment")
        await next_app(scope, receive, send)
