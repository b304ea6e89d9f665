"""Threads for blocking work that the event loop waits for, shared out fairly between those it is done for."""

import asyncio
import contextvars
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

from ragkv.fair_queue import FairQueue

P = ParamSpec("P")
T = TypeVar("T")

END_TURN: ContextVar[Callable[[], None]] = ContextVar("end_turn", default=lambda: None)
"""Callback before a wait for a resource with fair turns of its own: others may have the event loop's attention."""
OWNER: ContextVar[str] = ContextVar("owner", default="")
"""For whom work is done: a tenant's id."""


def share_cores() -> None:
    """One computation of torch takes a quarter of the cores, one at least: its threads wait for each other, spinning,
    and where others want the cores too, two take 20 times as long as one (docs/BENCHMARKS.md)."""
    import torch  # noqa: PLC0415 - seconds, and only for processes that compute

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 4))


class FairPool(ThreadPoolExecutor):
    """A pool whose threads are shared out by time, fairly between the owners of the work. `OWNER` says whose it is when
    it is submitted. `size_each`: threads that one owner may occupy at a time; all by default."""

    def __init__(self, name: str, size: int, size_each: int | None = None) -> None:
        super().__init__(size, thread_name_prefix=name)
        self._size_each = size_each or size
        self._occupied = Counter[str]()
        self._lock = threading.Lock()
        self._waiting = FairQueue[Callable[[], None]]()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        result: Future[T] = Future()
        with self._lock:
            self._waiting.put(OWNER.get(), partial(_fulfil, result, partial(fn, *args, **kwargs)))
        super().submit(self._do_next)
        return result

    def _do_next(self) -> None:
        """Do pieces until none may be begun: one that is passed over is begun by the thread that ends another of its
        owner's."""
        while (turn := self._take()) is not None:
            owner, piece = turn
            del turn
            began = time.monotonic()
            try:
                piece()
            finally:
                del piece  # see _fulfil
                with self._lock:
                    self._waiting.charge(owner, time.monotonic() - began)
                    self._occupied -= Counter((owner,))  # drops zeros

    def _take(self) -> tuple[str, Callable[[], None]] | None:
        with self._lock:
            full = {owner for owner, threads in self._occupied.items() if threads >= self._size_each}
            if not self._waiting.any_but(full):
                return None
            owner, piece = self._waiting.take(full)
            self._occupied[owner] += 1
            return owner, piece


class Threads:
    """A pool of threads of its own: its work waits for none of another kind, and takes no more than `size` threads."""

    def __init__(self, name: str, size: int, *, size_each: int | None = None, within_turn: bool = False) -> None:
        """`size_each`: threads that one owner may occupy at a time. `within_turn`: the work is so short that the event
        loop's attention is kept."""
        self._pool = FairPool(name, size, size_each)
        self._within_turn = within_turn

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, with the context variables of the caller."""
        if not self._within_turn:
            END_TURN.get()()
        call = partial(contextvars.copy_context().run, partial(work, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def _fulfil(result: "Future[T]", work: Callable[[], T]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        done = work()
    except BaseException as error:  # whoever waits for it gets it, as in the library's own pool
        result.set_exception(error)
        del result  # the error has this frame: together they would keep the request and its body in memory
    else:
        result.set_result(done)
