"""Messages between the worker, the fork server and its children. A child's answer is validated as hostile input."""

import msgspec

from ingest.parse import Parsed


class Limits(msgspec.Struct, frozen=True):
    """Limits on parsing one document. `seconds` count both as CPU time and by the clock."""

    seconds: int
    memory_mib: int


class Request(msgspec.Struct, frozen=True):
    """One document to parse; the descriptors of its body and of the answer come with it."""

    name: str
    limits: Limits


class Ended(msgspec.Struct, frozen=True):
    """The end of a child: its wait status, CPU seconds, and largest resident size in MiB."""

    status: int
    cpu_seconds: float
    peak_mib: int


class Read(msgspec.Struct, frozen=True, tag="read"):
    """The document's text."""

    parsed: Parsed


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


Reply = Read | Refused | OutOfMemory | Failed

encode = msgspec.msgpack.encode


def decode_answer(message: bytes) -> Reply | None:
    """None for anything but one complete answer."""
    try:
        answer: Reply = msgspec.msgpack.decode(message, type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answer
