"""A request that is asked again, once, when its engine was lost before anything of the answer was sent."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ragkv.engine.protocol import EngineLost, Piece


async def asked_again(
    attempt: Callable[[], AsyncGenerator[Piece, None]], recovered: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Piece, None]:
    """The pieces of `attempt`; those of a second one if EngineLost came before the first piece.

    recovered: returns when it is worth asking again, or raises Unavailable.
    """
    begun = False
    try:
        async with aclosing(attempt()) as pieces:
            async for piece in pieces:
                begun = True
                yield piece
    except EngineLost:
        if begun:
            raise
    else:
        return
    await recovered()
    async with aclosing(attempt()) as pieces:
        async for piece in pieces:
            yield piece
