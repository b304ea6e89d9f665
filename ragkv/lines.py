"""Lines of a stream of bytes, as server-sent events and JSON Lines have them."""

from collections.abc import AsyncGenerator, AsyncIterable

from ragkv.errors import Unavailable

LONGEST = 64 * 1024 * 1024
"""Bytes. A step's log-probabilities of a whole vocabulary are some 10 MiB."""


async def lines_of(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """The lines, without their LF or CRLF. Nothing else ends a line: JSON may contain the other line separators of
    Unicode, such as U+2028, as they are. Raises Unavailable for a line of more than LONGEST bytes."""
    partial = bytearray()
    async for piece in pieces:
        *whole, last = piece.split(b"\n")
        for end in whole:
            partial += end
            yield _text(partial)
            partial.clear()
        partial += last
        if len(partial) > LONGEST:
            raise Unavailable(f"a line of the response has more than {LONGEST:,} bytes")
    if partial:
        yield _text(partial)


def _text(line: bytearray) -> str:
    return line.removesuffix(b"\r").decode(errors="replace")
