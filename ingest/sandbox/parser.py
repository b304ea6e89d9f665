"""The worker's side of the sandbox: send a document to the fork server; receive a validated text, picture or boxes,
or the reason for a failure."""

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
from functools import partial
from typing import BinaryIO

import msgspec

from ingest.parse.parsed import MAX_PAGES, Parsed, one_line
from ingest.parse.quotes import Drawing, Located, Locating, Picture
from ingest.parse.scan import WITHOUT_OCR, ScannedPage
from ingest.sandbox.messages import (
    PAUSE,
    PROGRESS,
    Ended,
    KeptPages,
    Limits,
    OCRLimits,
    Parsing,
    Request,
    encode,
    parsing_memory,
)
from ingest.sandbox.validate import are_valid_boxes, is_valid_picture
from ingest.sandbox.verdict import (
    MAX_ANSWER_BYTES,
    Answered,
    ParserStopped,
    pages_read,
    verdict,
    verdict_on_page,
    wants_ocr,
)

PageReport = Callable[[int, int], None]
"""Told of the pages that were read by OCR, and of how many."""

_START_SECONDS = 60
OCR_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # a child can start no thread
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # on by default: ONNX Runtime would send events to its makers
}
_BUSY = 4
"""By the clock a child has so many times its seconds of CPU time: on a busy machine it waits for a core."""
_TICK_MS = 200
_BLOCK = 1 << 20


class ReadInPart(Exception):
    """Reading was paused: it goes on with the pages that are kept."""

    def __init__(self, pages: KeptPages) -> None:
        super().__init__(f"{len(pages.pages)} pages are read")
        self.kept = pages


class Parser:
    """Parses documents one at a time, each in a confined child of a fork server that is started when first needed.

    A document with pages to be read by OCR is parsed by the child of a second server, which has the models loaded. The
    servers end with this process. Close the parser to end them earlier; the next document starts others.
    """

    def __init__(
        self, limits: Limits, ocr: OCRLimits | str = WITHOUT_OCR.refusal, *, keeps_hidden: bool = False
    ) -> None:
        """`ocr`: limits on documents that are read by OCR, or what to do where there is none. `keeps_hidden`: words
        that the author hid are read like others."""
        self._limits = self._ocr_limits = limits
        self._parsing = Parsing(0, ocr, keeps_hidden) if isinstance(ocr, str) else Parsing(ocr.pages, "", keeps_hidden)
        if isinstance(ocr, OCRLimits):
            self._ocr_limits = Limits(ocr.seconds, limits.memory_mib, page_seconds=limits.seconds)
        self._lock = threading.Lock()
        self._servers: dict[bool, _Server] = {}

    def start(self) -> None:
        """Start the server of documents that need no OCR, unless it runs. Raises ParserStopped."""
        with self._lock:
            self._server(with_ocr=False)

    def parse(
        self,
        name: str,
        body: BinaryIO,
        watch: PageReport = lambda done, total: None,
        is_over: Callable[[], bool] = lambda: False,
        earlier: KeptPages = KeptPages(),  # noqa: B008 - immutable
    ) -> Parsed:
        """The text of a document. `watch` is called a few times a second with the pages that were read by OCR, and of
        how many; what it raises ends the child at once. So is `is_over` while pages are read: once it says so, the page
        in hand is the last for now. `earlier`: pages that were read before.

        Raises Rejected, naming the file, for one that cannot be read, exceeds a limit or crashes the parsers,
        ReadInPart when it was over, and ParserStopped when the child was killed by neither.
        """
        if not earlier.pages or self._parsing.no_ocr:
            answered = self._answered(Request(name, self._limits, self._parsing), body, watch)
            if not wants_ocr(answered):
                return verdict(one_line(name), self._limits, answered)
            body.seek(0)
        seconds_left = max(self._ocr_limits.seconds - earlier.seconds, 1)
        request = Request(name, msgspec.structs.replace(self._ocr_limits, seconds=seconds_left), self._parsing)
        answered = self._answered(request, body, watch, parsing_memory(earlier), with_ocr=True, is_over=is_over)
        if (read := pages_read(answered, earlier, self._parsing.max_scans)) is not None:
            raise ReadInPart(read)
        return verdict(one_line(name), self._ocr_limits, answered)

    def draw(self, name: str, body: BinaryIO, drawing: Drawing) -> Picture:
        """The picture of a page. Raises as `parse` does, and NotFound for a page that does not exist."""
        request = Request(name, self._limits, drawing)
        return verdict_on_page(one_line(name), self._limits, self._answered(request, body), Picture, is_valid_picture)

    def locate(self, name: str, body: BinaryIO, locating: Locating, scans: tuple[ScannedPage, ...] = ()) -> Located:
        """The boxes of words on pages, of which `scans` were read by OCR. Raises as `draw` does."""
        request = Request(name, self._limits, locating)
        answered = self._answered(request, body, shared=encode(scans))
        is_valid = partial(are_valid_boxes, locating=locating)
        return verdict_on_page(one_line(name), self._limits, answered, Located, is_valid)

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _answered(
        self,
        request: Request,
        body: BinaryIO,
        watch: PageReport = lambda done, total: None,
        shared: bytes = parsing_memory(KeptPages()),
        with_ocr: bool = False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Answered:
        with self._lock, os.fdopen(os.memfd_create("document"), "wb", buffering=0) as file:
            file.write(shared)
            memory = file.fileno()  # read with `pread`, as the child may change its size
            try:
                server = self._server(with_ocr)
                with server.begin(request, body, memory) as answer:
                    received, in_time, slow_page = _receive(answer, memory, request.limits, watch, is_over)
                return Answered(received, in_time, server.end(), slow_page)
            except BaseException:
                self._stop()
                raise

    def _server(self, with_ocr: bool) -> "_Server":
        if with_ocr not in self._servers:
            self._servers[with_ocr] = _Server.start(with_ocr)
        return self._servers[with_ocr]

    def _stop(self) -> None:
        while self._servers:
            _, server = self._servers.popitem()
            server.stop()


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
    def start(cls, with_ocr: bool) -> "_Server":
        """Returns when the parsers are loaded. It gets none of this process's variables, which hold passwords."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(  # noqa: S603  nothing of it comes from outside
                [sys.executable, "-I", "-m", "ingest.sandbox.server", *(["ocr"] if with_ocr else [])],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=OCR_ENVIRONMENT if with_ocr else {}, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        ours.settimeout(_START_SECONDS)
        server = cls(process, ours)
        if not ours.recv(1):
            server.stop()
            raise ConnectionError(f"exit status {process.returncode}")
        return server

    @_talking()
    def begin(self, request: Request, body: BinaryIO, memory: int) -> BinaryIO:
        """Have a child work on the body. Returns where its answer comes out."""
        message = encode(request)
        reading, writing = os.pipe()
        answer = os.fdopen(reading, "rb", buffering=0)
        try:
            socket.send_fds(self.control, [message], [body.fileno(), writing, memory])
        except OSError:
            answer.close()
            raise
        finally:
            os.close(writing)
        return answer

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


def _receive(
    answer: BinaryIO, memory: int, limits: Limits, watch: PageReport, is_over: Callable[[], bool]
) -> tuple[bytes, bool, bool]:
    """Everything the child writes until it ends, whether it ended before its deadline, and whether it read one page for
    too long. Excess output is cut off."""
    poll = select.poll()
    poll.register(answer, select.POLLIN)
    received = bytearray()
    began = page_began = time.monotonic()
    earlier = (0, 0)
    while len(received) <= MAX_ANSWER_BYTES:
        # By the child: pages that it has read, and of how many; zeros for what cannot be.
        written = os.pread(memory, PROGRESS.size, 0)
        done, total = PROGRESS.unpack(written) if len(written) == PROGRESS.size else (0, 0)
        done, total = progress = (done, total) if done <= total <= MAX_PAGES else (0, 0)
        watch(done, total)
        if total and is_over():
            os.pwrite(memory, b"\1", PAUSE)
        now_s = time.monotonic()
        if progress != earlier:
            earlier, page_began = progress, now_s
        left_ms = (began + _BUSY * limits.seconds - now_s) * 1000
        slow_page = bool(total and limits.page_seconds and now_s - page_began > limits.page_seconds)
        if left_ms <= 0 or slow_page:
            return bytes(received), False, slow_page
        if poll.poll(min(left_ms, _TICK_MS)):
            block = answer.read(_BLOCK)
            if not block:
                break
            received += block
    return bytes(received), True, False
