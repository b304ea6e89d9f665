"""Fair scheduling of requests at the event loop: only a few are processed at once, and the others wait in fair queues.

The loop and its threads share one interpreter. Without turns all requests would wait in the loop's own queue, in which
a client with a hundred requests has a hundred places.
"""

import asyncio
import hashlib
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

from api.http.observe import PROBES
from ragkv.threads import END_TURN, FairSlots

AT_ONCE = 2
LONGEST_S = 0.05
"""A request that takes longer is waiting for something, such as a lock or its own body: another turn starts."""
REMEMBERED = 10_000
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"cookie"})


def digest_of(*credentials: bytes) -> bytes:
    """32 bytes that stand for the credentials of a request: the key itself is never kept."""
    return hashlib.sha256(b"\0".join(credentials)).digest()


class Turns:
    """Wraps the app. A turn lasts until the response starts, or the request waits for its body or for a pool of threads
    with fair turns of its own, at most LONGEST_S. A request waits in the queue of its tenant once its key has been
    admitted, before that in the queue of its address: keys are looked up within turns."""

    def __init__(self, app: ASGIApp, at_once: int = AT_ONCE) -> None:
        self._app = app
        self.slots = FairSlots(at_once)
        self._tenants: dict[bytes, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        turn = RequestTurn(self, scope)
        await turn.start()
        END_TURN.set(turn.end)
        try:
            await self._app(scope, turn.renewed_by(receive), turn.ended_by(send))
        finally:
            turn.end()
            caller = scope.get("user")
            if turn.key and caller is not None:  # remember the tenant of a key that was admitted
                if len(self._tenants) >= REMEMBERED:
                    self._tenants.clear()
                self._tenants[turn.key] = caller.tenant_id

    def queue_of(self, key: bytes, scope: HTTPScope) -> str:
        """The queue of a request: its tenant, else its address."""
        caller = scope.get("user")
        tenant = self._tenants.get(key) if caller is None else caller.tenant_id
        return tenant or str((scope.get("client") or ("",))[0])


class RequestTurn:
    """The turns of one request, one at a time. Ending one that has ended does nothing."""

    def __init__(self, turns: Turns, scope: HTTPScope) -> None:
        self._turns = turns
        self._scope = scope
        credentials = [value for name, value in scope["headers"] if name in CREDENTIALS]
        self.key = digest_of(*credentials) if credentials else b""
        self._queue = ""
        self._started_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self._queue = self._turns.queue_of(self.key, self._scope)
        await self._turns.slots.acquire(self._queue)
        self._started_at = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(LONGEST_S, self.end)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._turns.slots.release(self._queue, time.monotonic() - self._started_at)

    def renewed_by(self, receive: Receive) -> Receive:
        """`receive`, which waits for a part of the body between two turns."""

        async def renewing() -> HTTPReceiveMessage | WebSocketReceiveMessage:
            self.end()
            message = await receive()
            if message["type"] == "http.request" and message["body"]:
                await self.start()
            return message

        return renewing

    def ended_by(self, send: Send) -> Send:
        async def ending(message: Message) -> None:
            self.end()
            await send(message)

        return ending
