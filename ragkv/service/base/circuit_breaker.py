"""A circuit breaker: while a server hangs, calls to it are refused at once, not each after a time limit of its own."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ragkv.errors import Unavailable


class CircuitBreaker:
    """Opens when a call times out, and closes when one ends in another way. While it is open, one call in `every_s`
    goes on: the server's time limit, so that few callers wait at a time. Shared by threads.

    refusal: message of a refused call.
    """

    def __init__(self, every_s: float, refusal: str) -> None:
        self._every_s = every_s
        self._refusal = refusal
        self._lock = threading.Lock()
        self._next_try: float | None = None

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Guard one call. Raises Unavailable in its place while the server hangs."""
        with self._lock:
            moment = time.monotonic()
            if self._next_try is not None:
                if moment < self._next_try:
                    raise Unavailable(self._refusal)
                self._next_try = moment + self._every_s
        try:
            yield
        except BaseException as error:
            self.note(error)
            raise
        self.note(None)

    def note(self, error: BaseException | None) -> None:
        """Note the end of a call, with its error."""
        with self._lock:
            if not _timed_out(error):
                self._next_try = None
            elif self._next_try is None:
                self._next_try = time.monotonic()


def _timed_out(error: BaseException | None) -> bool:
    """Whether a time limit was the cause: each library has an error of its own for it."""
    while error is not None and not isinstance(error, TimeoutError):
        error = error.__cause__ or error.__context__
    return error is not None
