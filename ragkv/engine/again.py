"""A request that is asked again, once, when its engine was lost before anything of the answer was sent."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ragkv.engine.protocol import EngineLost, Output


async def asked_again(
    attempt: Callable[[], AsyncGenerator[Output, None]], recovered: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Output, None]:
    """The outputs of `attempt`; those of a second one if EngineLost came before the first output.

    recovered: returns when it is worth asking again, or raises Unavailable.
    """
    begun = False
    try:
        async with aclosing(attempt()) as outputs:
            async for output in outputs:
                begun = True
                yield output
    except EngineLost:
        if begun:
            raise
    else:
        return
    await recovered()
    async with aclosing(attempt()) as outputs:
        async for output in outputs:
            yield output
