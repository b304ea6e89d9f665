"""The web server: limits of its process, timeouts of its connections, and a shutdown that finishes running requests."""

import asyncio
import gc
import logging
import resource
import socket
import sys
from types import FrameType
from typing import Any, Protocol

import httptools
import uvicorn
from litestar import Litestar
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.http.draining import Draining
from ragkv.errors import Rejected
from ragkv.threads import share_cores

KEEP_ALIVE_S = 130
"""How long a connection may lie idle: longer than proxies keep theirs (nginx 60 s, Traefik 90, Caddy 120), so that
proxies close them: a request that crosses the server's own close is lost."""
CUT_S = 1
"""How long requests that are cut off have to clean up."""
DESCRIPTORS = 65536
HEADERS_S = 30.0
"""For a new connection's first request, and for a request's headers once they have begun."""
INVALID = "Invalid HTTP request received."
LINGER_S = 5.0
"""For the rest of a body that is not read: a client that is refused early can still read the response."""
SWITCH_S = 0.0001
"""How long a thread may keep the interpreter from others, the event loop among them: a fiftieth of Python's default."""
GARBAGE = (2_000, 10, 5)
"""Thresholds of the garbage collector, which stops everything while it looks through all objects: every ten seconds
under load, instead of every other second with Python's defaults."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files and connections to the hard limit, at most DESCRIPTORS."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft not in (resource.RLIM_INFINITY, limit) and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def share_interpreter() -> None:
    """Configure the Python interpreter, which the event loop shares with threads, before it serves: switching and
    garbage collection."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GARBAGE)
    share_cores()


def freeze_objects() -> None:
    """Exempt everything loaded so far from garbage collection: half a million objects, half a second a collection."""
    gc.collect()
    gc.freeze()


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with time limits before the application takes over; `api.http.bodies` times bodies. A request
    that offers another protocol is answered as if it did not (RFC 9110, 7.8). A response that starts before its
    request's body is whole ends the connection: a proxy that does not send the rest must not send another's request."""

    headers_s = HEADERS_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._in_body = self._lingers = self._keeps_alive = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_in(self.headers_s)

    def data_received(self, data: bytes) -> None:
        if self._lingers:
            return
        self._unset_keepalive_if_required()
        unread = memoryview(data)
        try:
            while unread:
                try:
                    self.parser.feed_data(unread)
                except httptools.HttpParserUpgrade as offer:
                    unread = unread[offer.args[0] :]
                    self._parse_again_without_offer()
                else:
                    return
        except httptools.HttpParserError:
            self.logger.warning(INVALID)
            self.send_400_response(INVALID)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._close_in(self.headers_s)

    def on_headers_complete(self) -> None:
        if self._offers_protocol():
            return
        self._close_in(None)
        self._in_body = True
        super().on_headers_complete()
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        self.cycle.transport = _Lingering(self)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        if self._offers_protocol():
            return
        self._in_body = False
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps_alive

    def on_response_complete(self) -> None:
        if not self._lingers:
            super().on_response_complete()

    def close(self) -> None:
        """Close the connection behind a response. While its body still comes, only what is sent ends at once, and what
        comes is not read: a connection closed with bytes unread is reset, and the response lost."""
        if not self._in_body or self.transport.is_closing():
            self.transport.close()
            return
        self._lingers = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._close_in(LINGER_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_in(None)
        super().connection_lost(exc)

    def _offers_protocol(self) -> bool:
        """Whether the headers just parsed offer another protocol; CONNECT, to which a server agrees or not, is none."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _parse_again_without_offer(self) -> None:
        """A parser ends a request that offers another protocol behind its headers: another one gets the headers without
        the offer."""
        parser = self.parser
        request_line = b"%s %s HTTP/%s" % (parser.get_method(), self.url, parser.get_http_version().encode())
        fields = [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self.parser.feed_data(b"\r\n".join([request_line, *fields, b"", b""]))

    def _close_in(self, seconds: float | None) -> None:
        """Set the timer that closes the connection; None: no timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.close)


class _Lingering:
    """A connection's transport as its responses use it: it is closed by the protocol."""

    def __init__(self, protocol: TimedProtocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.close


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


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises Rejected if the address is in use or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise Rejected(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port or --host") from None
    return listener
