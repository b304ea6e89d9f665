"""Threads for blocking work that the event loop waits for."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A pool of threads of its own: its work waits for none of another kind, and takes no more than `size` threads."""

    def __init__(self, name: str, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, with the context variables of the caller."""
        call = partial(contextvars.copy_context().run, partial(work, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)
