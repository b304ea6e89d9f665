"""Event loops in threads, for users of an engine that are not asynchronous."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, Self, TypeVar

from ragkv.engine.protocol import Engine

T = TypeVar("T")


def run_on(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs coroutines on a loop of another thread, and waits for them."""
    return lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()


@cache
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="engine", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_background_loop.cache_clear)  # a child process has no copy of the thread


def run_in_background(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, from this process's one event loop in a thread. Raises as the coroutine does."""
    return run_on(_background_loop())(work)


class EngineLoop:
    """Runs an engine's coroutines. The engine is started when the first one comes, and stopped at the end."""

    def __init__(self, engine: Engine, starting: Callable[[], None] = lambda: None) -> None:
        """starting: called before the engine is started."""
        self._engine = engine
        self._starting = starting
        self._is_started = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Raises as it does, and as Engine.start does."""
        if not self._is_started:
            self._starting()
            self._is_started = True
            run_in_background(self._engine.start())
        return run_in_background(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_started:
            run_in_background(self._engine.stop())
