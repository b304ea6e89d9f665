"""Turn the exit of a child process into the requested result, or into the reason for its failure."""

import logging
import math
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ingest.parse import Parsed
from ingest.parse.quotes import Located, Picture
from ingest.sandbox.messages import (
    Ended,
    Failed,
    KeptPages,
    Limits,
    NeedsOCR,
    OutOfMemory,
    Read,
    Refused,
    Reply,
    decode_answer,
)
from ingest.sandbox.validate import is_valid
from ragkv.errors import NotFound, RagKVError, Rejected, TooLarge, Unsupported

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 256 << 20
_MAX_REASON_CHARS = 1_000
_KINDS = {kind.__name__: kind for kind in (Rejected, TooLarge, Unsupported)}
T = TypeVar("T", Picture, Located)
_OTHERWISE = "split it, or convert it to plain text"


class ParserStopped(RagKVError):
    """The parser was killed from outside, most likely because the machine ran out of memory: a later attempt may
    succeed."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A child's output, whether it ended before its deadline, and how. `slow_page`: it was reading one page for too
    long."""

    message: bytes
    in_time: bool
    ended: Ended
    slow_page: bool = False


def wants_ocr(answered: Answered) -> bool:
    """Whether the document is to be read where OCR is loaded."""
    return answered.in_time and isinstance(decode_answer(answered.message), NeedsOCR)


def pages_read(answered: Answered, earlier: KeptPages, most: int) -> KeptPages | None:
    """The pages that were read, one more than were kept at least and at most so many, with the seconds that it took;
    None if the child did not pause."""
    match decode_answer(answered.message) if answered.in_time else None:
        case KeptPages(pages) if len(earlier.pages) < len(pages) <= most:
            return KeptPages(pages, earlier.seconds + math.ceil(answered.ended.cpu_seconds))
    return None


def verdict(name: str, limits: Limits, answered: Answered) -> Parsed:
    """The document. Raises Rejected with the reason, ParserStopped where the document need not be at fault."""
    match _reply(name, limits, answered):
        case Read(parsed) if is_valid(parsed):
            return parsed
    raise _failure(name, limits, answered)


def verdict_on_page(name: str, limits: Limits, answered: Answered, kind: type[T], is_valid: Callable[[T], bool]) -> T:
    """The picture of a page, or boxes on pages. Raises as `verdict` does, and NotFound."""
    match _reply(name, limits, answered):
        case kind() as result if is_valid(result):
            return result
        case Refused(message=no_page):
            raise NotFound(_shown(no_page))
    raise _failure(name, limits, answered)


def _reply(name: str, limits: Limits, answered: Answered) -> Reply | None:
    """The child's reply in time, if it was no failure. Raises the failure."""
    answer = decode_answer(answered.message) if answered.in_time else None
    match answer:
        case Refused(kind, message) if kind != NotFound.__name__:  # that one concerns pages alone
            raise _KINDS.get(kind, Rejected)(_shown(message))
        case OutOfMemory():
            raise TooLarge(f"{name}: {_too_much_memory(limits)}")
        case Failed(kind, place):
            log.warning("the parser failed on a document: %s at %s", _shown(kind), _shown(place))
            raise Rejected(f"{name}: the parser failed on it ({_shown(kind)}): {_OTHERWISE}")
    return answer


def _failure(name: str, limits: Limits, answered: Answered) -> RagKVError:
    """The error to raise where there is no valid answer."""
    ended = answered.ended
    died_of = os.WTERMSIG(ended.status) if os.WIFSIGNALED(ended.status) else None
    if answered.slow_page:
        return TooLarge(f"{name}: one of its pages takes more than {limits.page_seconds} s to read: {_OTHERWISE}")
    if not answered.in_time or died_of == signal.SIGXCPU or ended.cpu_seconds >= limits.seconds:
        return TooLarge(f"{name}: it takes more than {limits.seconds} s to read: {_OTHERWISE}")
    if len(answered.message) > MAX_ANSWER_BYTES:
        return TooLarge(f"{name}: its text takes more than {MAX_ANSWER_BYTES >> 20} MiB: split it")
    if died_of == signal.SIGKILL:
        return ParserStopped("the parser was killed from outside, most likely because the machine ran out of memory")
    if ended.peak_mib * 2 > limits.memory_mib:
        return TooLarge(f"{name}: {_too_much_memory(limits)}")
    how = signal.Signals(died_of).name if died_of else "no valid answer"
    return Rejected(f"{name}: the parser crashed on it ({how}): it is damaged or too complex; {_OTHERWISE}")


def _too_much_memory(limits: Limits) -> str:
    return f"it takes more than {limits.memory_mib:,} MiB of memory to read: {_OTHERWISE}"


def _shown(words: str) -> str:
    """Words from the child, fit for a log and a browser."""
    return "".join(filter(str.isprintable, words))[:_MAX_REASON_CHARS]
