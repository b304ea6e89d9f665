"""Turns at the event loop: few requests are worked on at once, and those that wait are taken in fair order.

The loop and the threads beside it share one interpreter. Whatever has come in would otherwise wait in the loop's own line, in
which a client with a hundred requests has a hundred places.
"""

import asyncio
import time

from litestar.enums import ScopeType
from litestar.types import (
    ASGIApp,
    HTTPReceiveMessage,
    HTTPScope,
    Message,
    Receive,
    Scope,
    Send,
    WebSocketReceiveMessage,
)

from api.http.credentials import digest_of
from api.http.observe import PROBES
from ragkv.fair_queue import FairQueue
from ragkv.threads import END_TURN

AT_ONCE = 2
LONGEST_S = 0.05
"""A request that takes longer waits for something else, such as a lock or its own body: another one's turn begins."""
REMEMBERED = 10_000
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"cookie"})


class Turns:
    """Wraps the app. A turn lasts until the answer begins, or the request waits for its body or for a pool of threads that is
    shared out by itself, at most LONGEST_S. Requests stand in the line of their tenant once their key has been admitted,
    before that in the line of their address: a key is looked up only when its turn has come."""

    def __init__(self, app: ASGIApp, at_once: int = AT_ONCE) -> None:
        self._app = app
        self._free = at_once
        self._waiting = FairQueue[asyncio.Future[None]]()
        self._tenants: dict[bytes, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        turn = Turn(self, scope)
        await turn.begin()
        END_TURN.set(turn.end)
        try:
            await self._app(scope, turn.renewed_by(receive), turn.ended_by(send))
        finally:
            turn.end()
            self._learn(turn.key, scope)

    def line_of(self, key: bytes, scope: HTTPScope) -> str:
        """Where a request stands: for whose tenant, or from where."""
        caller = scope.get("user")
        tenant = self._tenants.get(key) if caller is None else caller.tenant_id
        return tenant or str((scope.get("client") or ("",))[0])

    def _learn(self, key: bytes, scope: HTTPScope) -> None:
        """Whose key it is, if it was admitted."""
        caller = scope.get("user")
        if key and caller is not None:
            if len(self._tenants) >= REMEMBERED:
                self._tenants.clear()
            self._tenants[key] = caller.tenant_id

    async def begun(self, line: str) -> None:
        """When this returns it is the turn of this line."""
        begun = asyncio.get_running_loop().create_future()
        self._waiting.put(line, begun)
        self._begin()
        try:
            await begun
        except asyncio.CancelledError:
            if not begun.cancelled():  # the turn had come just then
                self._free += 1
                self._begin()
            raise

    def _begin(self) -> None:
        """The next turns, as many as are free. A request that was given up waiting needs none."""
        while self._free and self._waiting:
            _, begun = self._waiting.take()
            if not begun.done():
                begun.set_result(None)
                self._free -= 1

    def ended(self, line: str, seconds: float) -> None:
        """A turn of this line ends, after so long."""
        self._waiting.charge(line, seconds)
        self._free += 1
        self._begin()


class Turn:
    """One request's. It ends once, however often it is ended."""

    def __init__(self, turns: Turns, scope: HTTPScope) -> None:
        self._turns = turns
        self._scope = scope
        self.key = _key_in(scope)
        self._line = ""
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        self._line = self._turns.line_of(self.key, self._scope)
        await self._turns.begun(self._line)
        self._began = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(LONGEST_S, self.end)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._turns.ended(self._line, time.monotonic() - self._began)

    def renewed_by(self, receive: Receive) -> Receive:
        """A part of the body is waited for between two turns."""

        async def renewing() -> HTTPReceiveMessage | WebSocketReceiveMessage:
            self.end()
            message = await receive()
            if message["type"] == "http.request" and message["body"]:
                await self.begin()
            return message

        return renewing

    def ended_by(self, send: Send) -> Send:
        async def ending(message: Message) -> None:
            self.end()
            await send(message)

        return ending


def _key_in(scope: HTTPScope) -> bytes:
    """A name for what the client is admitted by; empty if it shows nothing."""
    shown = [value for name, value in scope["headers"] if name in CREDENTIALS]
    return digest_of(*shown) if shown else b""
