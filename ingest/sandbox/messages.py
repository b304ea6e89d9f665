"""Messages between the worker, the fork server and its children. A child's answer is validated as hostile input."""

import struct

import msgspec

from ingest.parse import Parsed
from ingest.parse.quotes import Drawing, Located, Locating, Picture
from ingest.parse.scan import WITHOUT_OCR, ReadPage, ScannedPage


class Limits(msgspec.Struct, frozen=True):
    """Limits on parsing one document. `seconds` of CPU time, or several times as many by the clock; `page_seconds` by
    the clock, for each page that is read by OCR."""

    seconds: int
    memory_mib: int
    page_seconds: float | None = None


class OCRLimits(msgspec.Struct, frozen=True):
    """Limits on one document that is read by OCR: pages, and seconds like those of `Limits`."""

    pages: int
    seconds: int


class Parsing(msgspec.Struct, frozen=True, tag="parse"):
    """The whole document is to be parsed, at most `max_scans` pages of it by OCR. `no_ocr`: the reason why none can
    be. `keeps_hidden`: words that the author hid are read like others."""

    max_scans: int = 0
    no_ocr: str = WITHOUT_OCR.refusal
    keeps_hidden: bool = False


class Request(msgspec.Struct, frozen=True):
    """Work on one document. Three descriptors come with it: its body, the answer, and memory that both sides share, to
    which parsing writes its progress. For `Locating` it has the lines of pages that were read by OCR."""

    name: str
    limits: Limits
    work: Parsing | Drawing | Locating = Parsing()


class Ended(msgspec.Struct, frozen=True):
    """The end of a child: its wait status, CPU seconds, and largest resident size in MiB."""

    status: int
    cpu_seconds: float
    peak_mib: int


class Read(msgspec.Struct, frozen=True, tag="read"):
    """The document's text."""

    parsed: Parsed


class KeptPages(msgspec.Struct, frozen=True, tag="pages"):
    """The first pages of a document that were read by OCR, and the seconds that it took: the others are still to be
    read."""

    pages: tuple[ReadPage, ...] = ()
    seconds: int = 0


class NeedsOCR(msgspec.Struct, frozen=True, tag="ocr"):
    """Pages are to be read by OCR, which the fork server has not loaded."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A refusal: the class of the error and its message."""

    kind: str
    message: str


class OutOfMemory(msgspec.Struct, frozen=True, tag="memory"):
    """The memory limit was reached."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """An unexpected error: its class, and the line that raised it. Its message could hold the document's text."""

    kind: str
    place: str


Reply = Read | KeptPages | NeedsOCR | Picture | Located | Refused | OutOfMemory | Failed

encode = msgspec.msgpack.encode
decode_scans = msgspec.msgpack.Decoder(tuple[ScannedPage, ...]).decode
decode_kept = msgspec.msgpack.Decoder(KeptPages).decode
PROGRESS = struct.Struct("=II")
"""Pages that are read, and of how many."""
PAUSE = PROGRESS.size
"""The place behind it of the byte that tells the child to leave the pages that it has not begun for later."""


def parsing_memory(pages_read: KeptPages) -> bytes:
    """The content of the memory that is shared with a child that parses: progress, pause, and pages read before."""
    return bytes(PAUSE + 1) + encode(pages_read)


def decode_answer(message: bytes) -> Reply | None:
    """None for anything but one complete answer."""
    try:
        answer: Reply = msgspec.msgpack.decode(message, type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answer
