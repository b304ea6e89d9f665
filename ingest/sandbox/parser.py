"""The worker's side of the sandbox: send a document to the fork server, receive a validated text, picture or boxes, or
the reason why not."""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from ingest.parse.parsed import Parsed, one_line
from ingest.parse.pdf_page import Drawing, Located, Locating, Picture
from ingest.sandbox.messages import DrawPage, Ended, Limits, LocateQuotes, Request, encode
from ingest.sandbox.verdict import (
    MAX_ANSWER_BYTES,
    Answered,
    ParserStopped,
    verdict,
    verdict_on_boxes,
    verdict_on_picture,
)

_START_SECONDS = 60
_TICK_MS = 200
_BLOCK = 1 << 20


class Parser:
    """Parses documents one at a time, each in a confined child of a fork server that is started when first needed.

    The server ends with this process. Close the parser to end it earlier; the next document starts another.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def parse(self, name: str, body: BinaryIO, watch: Callable[[], None] = lambda: None) -> Parsed:
        """The text of a document. `watch` is called a few times a second; what it raises ends the child at once.

        Raises Rejected, naming the file, for one that cannot be read, exceeds a limit or crashes the parsers, and
        ParserStopped when the child was killed by neither.
        """
        return verdict(one_line(name), self._limits, self._answered(Request(name, self._limits), body, watch))

    def draw(self, name: str, body: BinaryIO, asked: Drawing) -> Picture:
        """The picture of a page of a PDF. Raises as `parse` does, and NotFound for a page that there is not."""
        request = Request(name, self._limits, DrawPage(asked))
        return verdict_on_picture(one_line(name), self._limits, self._answered(request, body))

    def locate(self, name: str, body: BinaryIO, asked: Locating) -> Located:
        """The boxes of words on pages of a PDF. Raises as `draw` does."""
        request = Request(name, self._limits, LocateQuotes(asked))
        return verdict_on_boxes(one_line(name), self._limits, self._answered(request, body), asked)

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _answered(self, request: Request, body: BinaryIO, watch: Callable[[], None] = lambda: None) -> Answered:
        with self._lock:
            try:
                if self._server is None:
                    self._server = _Server.start()
                with self._server.begin(request, body) as answer:
                    received, in_time = _receive(answer, time.monotonic() + self._limits.seconds, watch)
                return Answered(received, in_time, self._server.end())
            except BaseException:
                self._stop()
                raise

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None


@contextmanager
def _talking() -> Iterator[None]:
    """Raise ParserStopped for failures of the exchange with the server, which may have been killed."""
    try:
        yield
    except (OSError, msgspec.DecodeError) as error:
        raise ParserStopped(f"the parser's server was killed or cannot be started ({error})") from error


@dataclass
class _Server:
    """The fork server and the socket to it. When the socket closes, it kills its child and ends."""

    process: subprocess.Popen[bytes]
    control: socket.socket

    @classmethod
    @_talking()
    def start(cls) -> "_Server":
        """Returns when the parsers are loaded. It gets none of this process's variables, which hold passwords."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-m", "ingest.sandbox.server"],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        ours.settimeout(_START_SECONDS)
        server = cls(process, ours)
        if not ours.recv(1):
            server.stop()
            raise ConnectionError(f"exit status {process.returncode}")
        return server

    @_talking()
    def begin(self, request: Request, body: BinaryIO) -> BinaryIO:
        """Have a child parse the body. Returns where its answer comes out."""
        reading, writing = os.pipe()
        try:
            socket.send_fds(self.control, [encode(request)], [body.fileno(), writing])
        finally:
            os.close(writing)
        return os.fdopen(reading, "rb", buffering=0)

    @_talking()
    def end(self) -> Ended:
        """Kill the child, if it has not ended."""
        self.control.send(b".")
        return msgspec.msgpack.decode(self.control.recv(_BLOCK), type=Ended)

    def stop(self) -> None:
        self.control.close()
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _receive(answer: BinaryIO, deadline: float, watch: Callable[[], None]) -> tuple[bytes, bool]:
    """Everything the child writes until it ends, and whether it ended before the deadline. Excess output is cut off."""
    poll = select.poll()
    poll.register(answer, select.POLLIN)
    received = bytearray()
    while len(received) <= MAX_ANSWER_BYTES:
        watch()
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            return bytes(received), False
        if poll.poll(min(left_ms, _TICK_MS)):
            block = answer.read(_BLOCK)
            if not block:
                break
            received += block
    return bytes(received), True
