"""Just enough of HTTP to send what is wanted, whole or not, at little cost. Loads little: attackers begin at once."""

import asyncio
import itertools
import random
import time
from contextlib import suppress
from dataclasses import dataclass

import msgspec


class World(msgspec.Struct):
    """Where the service listens, and keys: the honest tenant's, and two of each hostile one."""

    port: int
    honest: str
    hostile: list[str]


HOST = "127.0.0.1"
PATIENCE_S = 60.0
NUMBER = "#number"
"""Stands in a request for a number that no other request has: the service remembers what it embedded."""
_NUMBERS = itertools.count(random.randrange(10**6))


@dataclass(frozen=True, slots=True)
class Wish:
    """A request as bytes. `holds_s`: how long an answer that does not end is read."""

    name: str
    sent: bytes
    holds_s: float = 0.0


def request(method: str, path: str, key: str | None, body: bytes = b"", kind: str = "application/json") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join((*lines, "", "")).encode() + body


class Client:
    """One connection, opened again whenever the other side has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, wish: Wish) -> tuple[int, float]:
        """(status, seconds); status 0: closed without an answer, or none came in time."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(HOST, self._port, limit=1 << 20)
                reader, writer = self._streams
                writer.write(wish.sent.replace(NUMBER.encode(), b"%07d" % (next(_NUMBERS) % 10**7)))
                status = await self._answer(reader, wish)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
            status = 0
        if status == 0 or wish.holds_s:
            await self.close()
        return status, time.perf_counter() - began

    async def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()

    async def _answer(self, reader: asyncio.StreamReader, wish: Wish) -> int:
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        if wish.holds_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(wish.holds_s):
                    await self._chunks(reader)
        elif b"content-length" in headers:
            await reader.readexactly(int(headers[b"content-length"]))
        else:
            await self._chunks(reader)
        if headers.get(b"connection") == b"close":
            await self.close()
        return status

    async def _chunks(self, reader: asyncio.StreamReader) -> None:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readuntil(b"\r\n")
