"""Messages between the worker, the fork server and its children. A child's answer is validated as hostile input."""

import msgspec

from ingest.parse import Parsed
from ingest.parse.pdf_page import Drawing, Located, Locating, Picture


class Limits(msgspec.Struct, frozen=True):
    """Limits on parsing one document. `seconds` count both as CPU time and by the clock."""

    seconds: int
    memory_mib: int


class Parsing(msgspec.Struct, frozen=True, tag="parse"):
    """The whole document is to be parsed."""


class DrawPage(msgspec.Struct, frozen=True, tag="draw"):
    """A page of a PDF is to be drawn."""

    asked: Drawing


class LocateQuotes(msgspec.Struct, frozen=True, tag="locate"):
    """Words are to be found on pages of a PDF."""

    asked: Locating


class Request(msgspec.Struct, frozen=True):
    """Work on one document; the descriptors of its body and of the answer come with it."""

    name: str
    limits: Limits
    work: Parsing | DrawPage | LocateQuotes = Parsing()


class Ended(msgspec.Struct, frozen=True):
    """The end of a child: its wait status, CPU seconds, and largest resident size in MiB."""

    status: int
    cpu_seconds: float
    peak_mib: int


class Read(msgspec.Struct, frozen=True, tag="read"):
    """The document's text."""

    parsed: Parsed


class Drawn(msgspec.Struct, frozen=True, tag="drawn"):
    """The picture of a page."""

    picture: Picture


class Found(msgspec.Struct, frozen=True, tag="found"):
    """Where words are on pages."""

    located: Located


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


Reply = Read | Drawn | Found | Refused | OutOfMemory | Failed

encode = msgspec.msgpack.encode


def decode_answer(message: bytes) -> Reply | None:
    """None for anything but one complete answer."""
    try:
        answer: Reply = msgspec.msgpack.decode(message, type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answer
