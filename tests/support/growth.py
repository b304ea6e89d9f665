"""How the processor time of a pure function grows with its input."""

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ingest.parse import parse
from ragkv.errors import Rejected

FACTOR = 8
QUADRATIC = FACTOR**2


def assert_linear(work: Callable[[Any], Any], text: Callable[[int], Any], size: int) -> None:
    """FACTOR times as much takes about FACTOR times as long, not QUADRATIC times. Much is done up to three times, until
    it is quick enough."""
    little, much = text(size), text(FACTOR * size)
    short = min(_seconds(work, little) for _ in range(3))
    ratios: list[float] = []
    while not ratios or (ratios[-1] >= QUADRATIC / 2 and len(ratios) < 3):
        ratios.append(_seconds(work, much) / short)
    assert min(ratios) < QUADRATIC / 2


def _seconds(work: Callable[[Any], Any], text: Any) -> float:
    """Without the collector of garbage: what it looks through is what other tests left, too."""
    gc.disable()
    began = time.thread_time()
    work(text)
    seconds = time.thread_time() - began
    gc.enable()
    return seconds


def read_or_refuse(name: str, body: bytes) -> None:
    """Parse a file that may be refused as noise."""
    with suppress(Rejected):
        parse(name, body)
