"""Retry of a request whose engine was lost before any part of the answer was sent."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ragkv.engine.protocol import EngineLost, Output


async def asked_again(
    attempt: Callable[[], AsyncGenerator[Output, None]], recovered: Callable[[], Awaitable[None]], refusals: int = 0
) -> AsyncGenerator[Output, None]:
    """The outputs of `attempt`; those of another one if EngineLost came before the first output.

    Once only after an engine that had taken the request: the request may have been what ended it. After one that was
    away, as often as `refusals` says. recovered: returns when it is worth asking again, or raises Unavailable.
    """
    losses = 0
    while True:
        begun = False
        try:
            async with aclosing(attempt()) as outputs:
                async for output in outputs:
                    begun = True
                    yield output
        except EngineLost as error:
            losses, refusals = losses + error.taken, refusals - (not error.taken)
            if begun or losses > 1 or refusals < 0:
                raise
        else:
            return
        await recovered()
