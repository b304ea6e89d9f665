"""Event loops in threads, for users of an engine that are not asynchronous."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any, Self, TypeVar

from ragkv.engine.protocol import Engine

T = TypeVar("T")


def run_on(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs coroutines on a loop of another thread, and waits for them."""
    return lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()


class LoopThread:
    """An event loop in a thread, which is started when the first coroutine comes."""

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="engine", daemon=True).start()
        return loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Raises as it does."""
        return run_on(self._loop)(work)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)


class EngineLoop:
    """Runs an engine's coroutines. The engine is started when the first one comes, and stopped at the end."""

    def __init__(self, engine: Engine, starting: Callable[[], None] = lambda: None) -> None:
        """starting: called before the engine is started."""
        self._engine = engine
        self._starting = starting
        self._thread: LoopThread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Raises as it does, and as Engine.start does."""
        if self._thread is None:
            self._starting()
            self._thread = LoopThread()
            self._thread.run(self._engine.start())
        return self._thread.run(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is not None:
            self._thread.run(self._engine.stop())
            self._thread.close()
