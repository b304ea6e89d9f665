"""Threads for blocking work that the event loop waits for, shared out fairly between those it is done for."""

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""For whom work is done: a tenant's id."""
SMALLEST_S = 0.001
"""What a piece counts for while it runs: those of one owner are not all taken at once."""
MANY_OWNERS = 1000
"""Beyond so many, those who wait for nothing are forgotten."""


class FairPool(ThreadPoolExecutor):
    """A pool whose threads are shared out by time: start-time fair queueing over the owners of the work (Goyal, Vin and Cheng,
    1996). An owner who asks for little waits for what is running, not for what others have brought. `OWNER` says whose work
    it is when it is submitted."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(size, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._starts: dict[str, float] = {}
        self._now = 0.0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        result: Future[T] = Future()
        piece = partial(_fulfil, result, partial(fn, *args, **kwargs))
        with self._lock:
            self._arrive(OWNER.get()).append(piece)
        super().submit(self._do_next)
        return result

    def _arrive(self, owner: str) -> deque[Callable[[], None]]:
        """The owner's queue. Whoever had none comes in now: time that was not asked for is not saved up."""
        if owner not in self._waiting:
            self._waiting[owner] = deque()
            self._starts[owner] = max(self._now, self._starts.get(owner, 0.0))
        return self._waiting[owner]

    def _do_next(self) -> None:
        """One call a piece, whichever it turns out to be."""
        owner, piece = self._take()
        began = time.monotonic()
        try:
            piece()
        finally:
            with self._lock:
                self._starts[owner] = self._starts.get(owner, self._now) + time.monotonic() - began

    def _take(self) -> tuple[str, Callable[[], None]]:
        with self._lock:
            owner = min(self._waiting, key=self._starts.__getitem__)
            self._now = max(self._now, self._starts[owner])
            self._starts[owner] += SMALLEST_S
            pieces = self._waiting[owner]
            piece = pieces.popleft()
            if not pieces:
                del self._waiting[owner]
            if len(self._starts) > MANY_OWNERS:
                self._starts = {
                    name: at for name, at in self._starts.items() if name in self._waiting or at > self._now
                }
        return owner, piece


class Threads:
    """A pool of threads of its own: its work waits for none of another kind, and takes no more than `size` threads."""

    def __init__(self, name: str, size: int) -> None:
        self._pool = FairPool(name, size)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, with the context variables of the caller."""
        call = partial(contextvars.copy_context().run, partial(work, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def _fulfil(result: "Future[T]", work: Callable[[], T]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        done = work()
    except BaseException as error:  # whoever waits for it gets it, as in the library's own pool
        result.set_exception(error)
    else:
        result.set_result(done)
