"""Request bodies: JSON unless another type is stated, and forms, also compressed with gzip, within limits of size and
time."""

import asyncio
import re
import time
import zlib
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

from litestar.exceptions import ClientException, HTTPException, InternalServerException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send
from litestar.types.empty import Empty

from api.http.disconnect import ClientClosed
from api.http.files import BoundedFormRequest
from ragkv.errors import TooLarge, Unsupported

ADVICE = "advice_on_size"
"""Option of a route: advice for a body beyond the route's limit."""
OF_UPLOADS = {ADVICE: "split the file, or raise RAGKV_MAX_UPLOAD_BYTES"}
"""Options of routes whose limit depends on that setting."""
_JSON = re.compile(r"application/(?:[^/\s]+\+)?json")

PIECE_BYTES = 64 * 1024
"""Decompressed at once, whatever the body expands to."""
_GZIP = zlib.MAX_WBITS + 16
_DAMAGED = "the body is not one whole gzip stream, as Content-Encoding says: compress it again, or send it as it is"

GRACE_S = 30.0
BYTES_PER_S = 16 * 1024
"""A body has GRACE_S, and what has come of it gives back the time that it takes at this rate, up to GRACE_S: a client
that is slower, or silent for longer, is cut off."""
SHORTEST_S = 0.01
"""Bytes that have already arrived are read, however late."""
TOO_SLOW = "the request body arrived too slowly, and the connection was closed: send it again without pauses"


class CheckedRequest(BoundedFormRequest):
    """The request of every handler."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces, decompressed. Raises TooLarge beyond the route's limit, Unsupported for an encoding other
        than gzip, ClientClosed for a body that breaks off."""
        limit = self.route_handler.resolve_request_max_body_size() or 0
        body, size = super().stream(), 0
        if self._body is Empty and is_gzipped(self.headers.get("content-encoding", "")):
            body = decompressed(body)
        try:
            async for piece in body:
                size += len(piece)
                if size > limit:
                    raise RequestEntityTooLarge  # noqa: TRY301 - as Litestar does before it is decompressed
                yield piece
        except InternalServerException:
            if not self.is_connected:  # a body is read once
                raise
            raise ClientClosed from None
        except RequestEntityTooLarge:
            advice = self.route_handler.opt.get(ADVICE, "shorten it, or send it in several requests")
            units = (("MiB", 1024 * 1024), ("KiB", 1024), ("bytes", 1))
            most = next(f"{limit // unit_bytes:,} {unit}" for unit, unit_bytes in units if limit % unit_bytes == 0)
            raise TooLarge(f"the body of this request may have at most {most}: {advice}") from None

    async def json(self) -> Any:
        """The body as JSON. Raises Unsupported for a body of another content type: pages of other sites can send those,
        but not JSON."""
        kind, _ = self.content_type
        if kind and not _JSON.fullmatch(kind):
            raise Unsupported(
                f"Content-Type {kind[:80]!r} is not supported: send JSON, with Content-Type: application/json"
            )
        return await super().json()


def is_gzipped(encoding: str) -> bool:
    """Whether the body of a request with this `Content-Encoding` is compressed. Raises Unsupported for an encoding that
    is not read."""
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip", "x-gzip"):
        raise Unsupported(f"Content-Encoding {name[:80]!r} is not supported: use gzip, or send the body as it is")
    return name.endswith("gzip")


async def decompressed(body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The body in pieces of PIECE_BYTES. Others have a turn after each. Raises ClientException for a damaged one."""
    stream = zlib.decompressobj(_GZIP)
    try:
        async for data in body:
            piece = stream.decompress(data, PIECE_BYTES)
            while piece:
                yield piece
                await asyncio.sleep(0)
                piece = stream.decompress(stream.unconsumed_tail, PIECE_BYTES)
            if stream.unused_data:
                break
    except zlib.error:
        raise ClientException(_DAMAGED) from None
    if stream.unused_data or not stream.eof:
        raise ClientException(_DAMAGED)


class BodyTimeout:
    """Wraps the whole app: a body that is too slow gets 408, and its connection is closed."""

    def __init__(self, app: ASGIApp, grace_s: float = GRACE_S) -> None:
        self._app = app
        self._grace_s = grace_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _Body(receive, self._grace_s).receive, send)


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
