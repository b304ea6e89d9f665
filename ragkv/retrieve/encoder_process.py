"""The encoder in a separate process, for callers that are busy with other work.

A text is hundreds of small operations, before each of which a thread waits for its turn at the interpreter. Beside five
busy threads that is 20 times the encoder's own time; beside none of them it is the encoder's own time
(docs/BENCHMARKS.md).
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ragkv.errors import Unavailable
from ragkv.retrieve.encoder import Encoder
from ragkv.threads import end_with_parent, share_cores

TRIES = 2
"""A text that ends the process twice is not encoded."""
NICENESS = 10
"""Who only asks for a list does not wait for the encoder."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class EncoderProcess:
    """Encodes as `Encoder` does, one call after the other, safe to share between threads.
    A process that died is started again.

    `close` ends it; so does the end of this process, however it ends.
    """

    def __init__(self, folder: Path) -> None:
        """Start the process and load the encoder in it. Raises what `Encoder.load` raises."""
        self._folder = folder
        self._lock = threading.Lock()
        self._pool = self._started()
        self.dim = self._pool.submit(_load, folder).result()

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """[len(texts), dim] float32 rows of unit length. Raises Unavailable if the process dies of it."""
        return self._in_process(_encode, texts)

    def count_tokens(self, texts: list[str]) -> int:
        """Tokens that `encode` reads. Raises Unavailable likewise."""
        return self._in_process(_count_tokens, texts)

    def _in_process(self, work: Callable[[Path, list[str]], T], texts: list[str]) -> T:
        for _ in range(TRIES):
            pool = self._pool
            with suppress(BrokenProcessPool):
                return pool.submit(work, self._folder, texts).result()
            with self._lock:  # several threads may find the same pool broken; one of them replaces it
                if self._pool is pool:
                    log.error("the encoder's process died and will be started again")
                    self._pool = self._started()
        raise Unavailable("the encoder's process died while it read this text; ask again, or see the service's log")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_prepare)


_loaded: dict[Path, Encoder] = {}
"""In the encoder's process."""


def _prepare() -> None:
    """Signals of the terminal and of a service manager are for the parent:
    it stops this process when it is not needed any longer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    share_cores()
    os.nice(NICENESS)


def _load(folder: Path) -> int:
    if folder not in _loaded:
        _loaded[folder] = Encoder.load(folder)
    return _loaded[folder].dim


def _encode(folder: Path, texts: list[str]) -> NDArray[np.float32]:
    _load(folder)
    return _loaded[folder].encode(texts)


def _count_tokens(folder: Path, texts: list[str]) -> int:
    _load(folder)
    return _loaded[folder].count_tokens(texts)
