"""Time limits for request bodies."""

import asyncio
import time
from http import HTTPStatus

from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

GRACE_S = 30.0
BYTES_PER_S = 16 * 1024
"""A body has GRACE_S, and what has come of it gives back the time that it takes at this rate, up to GRACE_S: a client
that is slower, or silent for longer, is cut off."""
SHORTEST_S = 0.01
"""Bytes that have already arrived are read, however late."""
TOO_SLOW = "the request body arrived too slowly, and the connection was closed: send it again without pauses"


class BodyTimeout:
    """Wraps the whole app: a body that is too slow gets 408, and its connection is closed."""

    def __init__(self, app: ASGIApp, grace_s: float = GRACE_S) -> None:
        self._app = app
        self._grace_s = grace_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        body = _Body(receive, self._grace_s)

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.REQUEST_TIMEOUT:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, body.receive, closing)


class _Body:
    """A request's body as it comes in. Only waiting for it is timed, neither the service's work in between nor anything
    after its end."""

    def __init__(self, receive: Receive, grace_s: float) -> None:
        self._receive = receive
        self._grace_s = self._left_s = grace_s
        self.is_whole = False

    async def receive(self) -> HTTPReceiveMessage:
        if self.is_whole:
            return await self._receive()  # type: ignore[return-value]
        began = time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(self._left_s, SHORTEST_S))
        except TimeoutError:
            raise HTTPException(TOO_SLOW, status_code=HTTPStatus.REQUEST_TIMEOUT) from None
        self._left_s -= time.monotonic() - began
        if message["type"] == "http.request":
            self._left_s = min(self._left_s + len(message["body"]) / BYTES_PER_S, self._grace_s)
            self.is_whole = not message.get("more_body", False)
        return message  # type: ignore[return-value]
