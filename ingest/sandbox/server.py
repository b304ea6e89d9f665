"""Fork server: a process with the parsers loaded, which forks a confined child for each document.

It never looks at a document itself. `python -I -m ingest.sandbox.server`, with a socket to the worker as standard
input; when the worker is gone, so are this process and its child.
"""

import encodings
import gc
import importlib
import os
import pkgutil
import signal
import socket
import sys
import traceback
from contextlib import suppress

import msgspec

from ingest.parse import parse
from ingest.parse.pdf_page import draw, locate
from ingest.sandbox.confine import confine, die_with_parent
from ingest.sandbox.messages import (
    Drawn,
    DrawPage,
    Ended,
    Failed,
    Found,
    LocateQuotes,
    OutOfMemory,
    Read,
    Refused,
    Reply,
    Request,
    encode,
)
from ragkv.errors import NotFound, Rejected

READY = b"."
MAX_REQUEST_BYTES = 1 << 17
_NOT_ON_LINUX = ("mbcs", "oem")


def main() -> None:
    """Serve the worker until it closes its end. Signals meant for the worker's process group do not stop it."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    # Import modules that are otherwise imported on first use, when a child can open no file.
    importlib.import_module("xml.dom.expatbuilder")
    for module in pkgutil.iter_modules(encodings.__path__):
        if module.name not in _NOT_ON_LINUX:
            importlib.import_module(f"encodings.{module.name}")
    gc.freeze()
    with socket.socket(fileno=0) as control, suppress(ConnectionError):
        control.send(READY)
        while True:
            message, descriptors, *_ = socket.recv_fds(control, MAX_REQUEST_BYTES, 2)
            if not message:
                return
            _serve(msgspec.msgpack.decode(message, type=Request), descriptors, control)


def _serve(request: Request, descriptors: list[int], control: socket.socket) -> None:
    """Run one child until the worker sends a byte or closes its end, then kill it and report."""
    body, answer = descriptors
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _run_child(request, body, answer, parent)
    for descriptor in descriptors:
        os.close(descriptor)
    control.recv(1)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    control.send(encode(Ended(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10)))


def _run_child(request: Request, body: int, answer: int, parent: int) -> None:
    """Work, answer, end: this process never returns to the server's loop."""
    try:
        os.dup2(body, 0)
        os.dup2(answer, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.meta_path.clear()  # no file can be opened from here on: a module (an encoding) that is not loaded is unknown
        confine(request.limits)
        die_with_parent(parent)
        rest = memoryview(_answer(request))
        while rest:
            rest = rest[os.write(1, rest) :]
        os._exit(0)
    finally:
        os._exit(1)


def _answer(request: Request) -> bytes:
    try:
        with open(0, "rb", closefd=False) as file:
            return encode(_done(request, file.read()))
    except (Rejected, NotFound) as refusal:
        return encode(Refused(type(refusal).__name__, str(refusal)))
    except MemoryError:
        return encode(OutOfMemory())
    except Exception as error:  # a fault of a parser: the document is refused, the worker's log says where
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        return encode(Failed(type(error).__name__, f"{frame.f_globals.get('__name__')}:{line}"))


def _done(request: Request, body: bytes) -> Reply:
    match request.work:
        case DrawPage(asked):
            return Drawn(draw(body, asked))
        case LocateQuotes(asked):
            return Found(locate(body, asked))
    return Read(parse(request.name, body))


if __name__ == "__main__":
    main()
