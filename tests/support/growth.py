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


def growth(work: Callable[[str], Any], text: Callable[[int], str], size: int) -> float:
    """How many times longer FACTOR times as much takes: about FACTOR if it is linear, QUADRATIC if it is not."""
    return _seconds(work, text(FACTOR * size)) / _seconds(work, text(size))


def _seconds(work: Callable[[str], Any], text: str) -> float:
    """The least of three, without the collector of garbage: what it looks through is what other tests left, too."""
    times = []
    gc.collect()
    gc.disable()
    for _ in range(3):
        began = time.thread_time()
        work(text)
        times.append(time.thread_time() - began)
    gc.enable()
    return min(times)


def read_or_refuse(name: str, body: bytes) -> None:
    """Parse a file that may be refused as noise."""
    with suppress(Rejected):
        parse(name, body)
