"""Connections with timeouts: a client that sends nothing, or only half a request, is disconnected."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_S = 30.0
"""For a new connection's first request, and for a request's headers once they have begun."""
LINGER_S = 5.0
"""For the rest of a body that is not read: a client that is refused early can still read the response."""


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with time limits before the application takes over; `api.http.body_timeout` times bodies."""

    headers_s = HEADERS_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_in(self.headers_s)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._close_in(self.headers_s)

    def on_headers_complete(self) -> None:
        self._close_in(None)
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:
            self._close_in(LINGER_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_in(None)
        super().connection_lost(exc)

    def _close_in(self, seconds: float | None) -> None:
        """Set the timer that closes the connection; None: no timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.close)
