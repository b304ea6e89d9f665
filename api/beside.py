"""Work beside the service, for as long as it runs."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

AGAIN_S = 1.0
"""Python 3.11's `wait_for` loses a cancellation that meets its result: then the task is cancelled again."""


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
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
