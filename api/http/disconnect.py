"""Work that is cancelled when the client disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Generator
from typing import Any, TypeVar

from litestar import Request
from litestar.exceptions import ClientException

Step = TypeVar("Step")


class ClientClosed(ClientException):
    """The client closed the request before it was answered."""

    status_code = 499

    def __init__(self) -> None:
        super().__init__("the client closed the request")


async def unless_disconnected(request: Request[Any, Any, Any], work: Awaitable[Step]) -> Step:
    """The result of `work`, which is cancelled when the client closes the request. Its body must have been read."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientClosed
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def stepwise(steps: Generator[Step, None, None]) -> AsyncGenerator[Step, None]:
    """The results of a blocking generator's steps, each step in a thread. It is closed between two steps."""
    step: asyncio.Future[Step | None] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(next, steps, None))
            if (result := await asyncio.shield(step)) is None:
                return
            yield result
    finally:
        if step is not None:
            await asyncio.wait({step})
        await asyncio.to_thread(steps.close)


async def _disconnected(request: Request[Any, Any, Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
