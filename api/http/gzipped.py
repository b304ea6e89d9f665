"""Bodies compressed with gzip, decompressed as they come."""

import asyncio
import zlib
from collections.abc import AsyncGenerator

from litestar.exceptions import ClientException

from ragkv.errors import Unsupported

PIECE_BYTES = 64 * 1024
"""Decompressed at once, whatever the body expands to."""
_GZIP = zlib.MAX_WBITS + 16
_DAMAGED = "the body is not one whole gzip stream, as Content-Encoding says: compress it again, or send it as it is"


def is_gzipped(encoding: str) -> bool:
    """Whether the body of a request with this `Content-Encoding` is compressed. Raises Unsupported for an encoding that
    is not read."""
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip", "x-gzip"):
        raise Unsupported(f"Content-Encoding {name[:80]!r} is not supported: use gzip, or send the body as it is")
    return name.endswith("gzip")


async def decompressed(body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The body in pieces of PIECE_BYTES. Others have a turn after each. Raises ClientException for a damaged one."""
    stream = zlib.decompressobj(_GZIP)
    try:
        async for data in body:
            piece = stream.decompress(data, PIECE_BYTES)
            while piece:
                yield piece
                await asyncio.sleep(0)
                piece = stream.decompress(stream.unconsumed_tail, PIECE_BYTES)
            if stream.unused_data:
                break
    except zlib.error:
        raise ClientException(_DAMAGED) from None
    if stream.unused_data or not stream.eof:
        raise ClientException(_DAMAGED)
