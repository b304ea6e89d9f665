"""Fork server: a process with the parsers loaded, which forks a confined child for each document.

It never looks at a document itself. `python -I -m ingest.sandbox.server [ocr]`, with a socket to the worker as standard
input; when the worker is gone, so are this process and its child. With `ocr` it has the models of OCR loaded too.
"""

import encodings
import gc
import importlib
import mmap
import os
import pkgutil
import signal
import socket
import sys
import traceback
from contextlib import suppress

import msgspec

from ingest.parse import draw, locate, parse
from ingest.parse.quotes import Drawing, Locating
from ingest.parse.scan import OCR, Paused, Recognise, WantsOCR
from ingest.sandbox.confine import confine, die_with_parent
from ingest.sandbox.messages import (
    PAUSE,
    PROGRESS,
    Ended,
    Failed,
    KeptPages,
    NeedsOCR,
    OutOfMemory,
    Parsing,
    Read,
    Refused,
    Reply,
    Request,
    decode_kept,
    decode_scans,
    encode,
)
from ragkv.errors import NotFound, Rejected

READY = b"."
OCR_LOADED = "ocr"
MAX_REQUEST_BYTES = 1 << 17
_NOT_ON_LINUX = ("mbcs", "oem")


def main(*capabilities: str) -> None:
    """Serve the worker until it closes its end. Signals meant for the worker's process group do not stop it."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    # Import modules that are otherwise imported on first use, when a child can open no file.
    importlib.import_module("xml.dom.expatbuilder")
    for module in pkgutil.iter_modules(encodings.__path__):
        if module.name not in _NOT_ON_LINUX:
            importlib.import_module(f"encodings.{module.name}")
    recognise = importlib.import_module("ingest.ocr.rapid").Recogniser() if OCR_LOADED in capabilities else None
    gc.freeze()
    with socket.socket(fileno=0) as control, suppress(ConnectionError):
        control.send(READY)
        while True:
            message, descriptors, *_ = socket.recv_fds(control, MAX_REQUEST_BYTES, 3)
            if not message:
                return
            _serve(msgspec.msgpack.decode(message, type=Request), recognise, descriptors, control)


def _serve(request: Request, recognise: Recognise | None, descriptors: list[int], control: socket.socket) -> None:
    """Run one child until the worker sends a byte or closes its end, then kill it and report."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _run_child(request, recognise, descriptors, parent)
    for descriptor in descriptors:
        os.close(descriptor)
    control.recv(1)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    control.send(encode(Ended(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10)))


def _run_child(request: Request, recognise: Recognise | None, descriptors: list[int], parent: int) -> None:
    """Work, answer, end: this process never returns to the server's loop."""
    try:
        body, answer, memory = descriptors
        shared = mmap.mmap(memory, 0)
        os.dup2(body, 0)
        os.dup2(answer, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.meta_path.clear()  # no file can be opened from here on: a module (an encoding) that is not loaded is unknown
        confine(request.limits)
        die_with_parent(parent)
        unsent = memoryview(_answer(request, recognise, shared))
        while unsent:
            unsent = unsent[os.write(1, unsent) :]
        os._exit(0)
    finally:
        os._exit(1)


def _answer(request: Request, recognise: Recognise | None, shared: mmap.mmap) -> bytes:
    try:
        with open(0, "rb", closefd=False) as file:
            return encode(_done(request, file.read(), recognise, shared))
    except WantsOCR:
        return encode(NeedsOCR())
    except (Rejected, NotFound) as refusal:
        return encode(Refused(type(refusal).__name__, str(refusal)))
    except MemoryError:
        return encode(OutOfMemory())
    except Exception as error:  # a fault of a parser: the document is refused, the worker's log says where
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        return encode(Failed(type(error).__name__, f"{frame.f_globals.get('__name__')}:{line}"))


def _done(request: Request, body: bytes, recognise: Recognise | None, shared: mmap.mmap) -> Reply:
    match request.work:
        case Drawing():
            return draw(body, request.work)
        case Locating():
            return locate(body, request.work, decode_scans(shared))
        case Parsing(max_scans, no_ocr, keeps_hidden):
            ocr = OCR(
                no_ocr, max_scans, recognise, lambda done, total: PROGRESS.pack_into(shared, 0, done, total),
                decode_kept(shared[PAUSE + 1 :]).pages, lambda: bool(shared[PAUSE]),
            )  # fmt: skip
            try:
                return Read(parse(request.name, body, ocr, keeps_hidden=keeps_hidden))
            except Paused as paused:
                return KeptPages(paused.pages)


if __name__ == "__main__":
    main(*sys.argv[1:])
