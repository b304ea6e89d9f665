"""Slots of an event loop: few hold one at a time, and the others wait in fair queues."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ragkv.fair_queue import FairQueue


class FairSlots:
    """`size` slots, shared out by time, fairly between owners. For one event loop alone."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting = FairQueue[asyncio.Future[None]]()

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncIterator[None]:
        """A slot of this owner's for as long as the block lasts, once it is the owner's turn."""
        await self.acquire(owner)
        began = time.monotonic()
        try:
            yield
        finally:
            self.release(owner, time.monotonic() - began)

    async def acquire(self, owner: str) -> None:
        """Wait for a slot, which the owner has to release."""
        started = asyncio.get_running_loop().create_future()
        self._waiting.put(owner, started)
        self._start_next()
        try:
            await started
        except asyncio.CancelledError:
            if not started.cancelled():  # the slot was taken just then
                self._free += 1
                self._start_next()
            raise

    def release(self, owner: str, seconds: float) -> None:
        """Return this owner's slot, which was held for `seconds`."""
        self._waiting.charge(owner, seconds)
        self._free += 1
        self._start_next()

    def _start_next(self) -> None:
        """Give away the slots that are free. An owner that no longer waits needs none."""
        while self._free and self._waiting:
            _, started = self._waiting.take()
            if not started.done():
                started.set_result(None)
                self._free -= 1
