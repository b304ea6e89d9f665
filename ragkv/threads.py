"""Threads for blocking work that the event loop waits for, shared out fairly between those it is done for."""

import asyncio
import contextvars
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""For whom work is done: a tenant's id."""


class FairPool(ThreadPoolExecutor):
    """A pool whose threads take work from its owners in turn: an owner's work waits for one piece of each other's, not
    for all that they have brought. `OWNER` says whose work it is when it is submitted."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(size, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        result: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(OWNER.get(), deque()).append(
                partial(_fulfil, result, partial(fn, *args, **kwargs))
            )
        super().submit(self._do_next)
        return result

    def _do_next(self) -> None:
        """The first piece of the owner whose turn it is. One call a piece, whichever it turns out to be."""
        with self._lock:
            owner, pieces = self._waiting.popitem(last=False)
            piece = pieces.popleft()
            if pieces:
                self._waiting[owner] = pieces
        piece()


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
