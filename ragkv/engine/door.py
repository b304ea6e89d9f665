"""The engine of the service on a Unix socket, for the workers of the same machine: it prefills, and answers nothing.

A connection carries one prefill: its length in four bytes, the prefill, and one line back, both in JSON. Closing it
ends the prefill. The socket lies in the data folder, which only this user may open.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec

from ragkv.engine.protocol import KVEngine, Prefill, Report
from ragkv.errors import OutOfSpace, Unavailable

MAX_BYTES = 64 * 2**20
LOOK_S = 5.0
"""Between looks whether another service that took the socket has ended."""
_LENGTH_BYTES = 4
_RETRY_AFTER_S = 10.0
_AWAY = "the service that runs the engine is away: start `ragkv serve`, or set RAGKV_ENGINE_URL"

log = logging.getLogger(__name__)


class EngineDoor:
    """Serves prefills of an engine on a socket while its block runs.

    One that another process left is replaced, and so is that of one that runs: workers ask the service that started
    last. Once it has ended, by itself or killed, one of the others opens the socket again.
    """

    def __init__(self, engine: KVEngine, path: Path) -> None:
        self._engine = engine
        self._path = path

    async def __aenter__(self) -> Self:
        await self._open()
        self._keeping = asyncio.create_task(self._keep_open())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        self._server.close()
        if self._is_own():
            self._path.unlink()

    async def _open(self) -> None:
        self._path.unlink(missing_ok=True)
        with _short(self._path) as path:
            self._server = await asyncio.start_unix_server(self._serve, path)
        self._path.chmod(0o600)
        self._identity = self._path.stat().st_ino

    async def _keep_open(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._is_own() or is_open(self._path):
                continue
            self._server.close()  # nobody can reach it; connections that were made stay
            try:
                await self._open()
            except OSError as error:
                log.warning("workers cannot ask this service's engine yet: %s", error)

    def _is_own(self) -> bool:
        try:
            return self._path.stat().st_ino == self._identity
        except OSError:
            return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
            if length > MAX_BYTES:
                raise ValueError(f"it has {length:,} bytes")  # noqa: TRY301 - like what the decoder raises
            prefill = msgspec.json.decode(await reader.readexactly(length), type=Prefill)
            working = asyncio.ensure_future(self._result_of(prefill))
            leaving = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if working.done():
                writer.write(msgspec.json.encode(working.result()) + b"\n")
                await writer.drain()
            else:
                working.cancel()
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            if not (isinstance(error, asyncio.IncompleteReadError) and not error.partial):  # `is_open` sends nothing
                log.warning("a worker's prefill broke off: %s", error)
        finally:
            writer.close()

    async def _result_of(self, prefill: Prefill) -> Report:
        try:
            await self._engine.prefill(prefill)
        except OutOfSpace as error:
            return Report(error=str(error), no_room=True)
        except Unavailable as error:
            return Report(error=str(error))
        except Exception:
            log.exception("a prefill failed")
            return Report(error="the engine could not prefill: see the service's log")
        return Report()


class EngineBehindDoor:
    """The engine of the service on this machine, as its workers see it."""

    def __init__(self, path: Path, silence_s: float = 300.0) -> None:
        """silence_s: the longest that a prefill may take."""
        self._path = path
        self._silence_s = silence_s

    async def prefill(self, prefill: Prefill) -> None:
        """See KVEngine.prefill. Raises Unavailable also where no service runs, and for a prefill that does not end, as
        while the disk of KV hangs."""
        try:
            async with asyncio.timeout(self._silence_s):
                result = await self._result_of(prefill)
        except TimeoutError:
            raise Unavailable(f"no KV was stored within {self._silence_s:.0f} s: does the disk of KV hang?") from None
        except (OSError, msgspec.DecodeError) as error:
            raise Unavailable(_AWAY, _RETRY_AFTER_S) from error
        if result.error:
            raise OutOfSpace(result.error) if result.no_room else Unavailable(result.error)

    async def _result_of(self, prefill: Prefill) -> Report:
        content = msgspec.json.encode(prefill)
        with _short(self._path) as path:
            reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(len(content).to_bytes(_LENGTH_BYTES, "big") + content)
            await writer.drain()
            return msgspec.json.decode(await reader.readline(), type=Report)
        finally:
            writer.close()


def is_open(path: Path) -> bool:
    """Whether a service serves its engine there."""
    try:
        with _short(path) as address, socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            return client.connect_ex(address) in (0, errno.EAGAIN)  # or too many are waiting to be accepted
    except OSError:
        return False


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """An address of the socket for the block: those of sockets have 107 bytes at most, those of folders more."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
