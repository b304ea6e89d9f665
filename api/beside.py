"""Background work that runs as long as the service does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from litestar import Litestar

Work = Coroutine[Any, Any, None]

AGAIN_S = 1.0
"""Python 3.11's `wait_for` loses a cancellation that meets its result: then the task is cancelled again."""


@asynccontextmanager
async def beside(work: Work) -> AsyncIterator[None]:
    """Do the work beside the block, and cancel it at the block's end, until it has ended. Its error is raised there."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=AGAIN_S)
        if not task.cancelled():
            task.result()


def lifespan_of(begin: Callable[[], Work]) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """A lifespan of the app with work beside the service, which begins when the app starts."""
    return lambda app: beside(begin())
