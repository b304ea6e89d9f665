"""Probes of the service's parts: each runs at most once at a time, in threads of its own, and never for long.

Anybody may ask `/readyz`, so that callers who ask at the same time share one look; and a part that hangs costs one
thread, whatever else is slow.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ragkv.parts import Parts
from ragkv.statistics.engine import PATIENCE_S, SILENT, status_of
from ragkv.upkeep import condition

Look = Callable[[Parts], str]

LOOKS: dict[str, Look] = {
    "database": condition.database,
    "redis": condition.redis,
    "index": condition.index,
    "worker": condition.worker,
    "queue": condition.queue,
    "disk": condition.disk,
}


class Probes:
    """The condition of every part, by its name: "ok", or what is wrong with it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._threads = ThreadPoolExecutor(len(LOOKS), thread_name_prefix="probe")
        self._running: dict[str, asyncio.Future[str]] = {}

    async def look(self) -> dict[str, str]:
        found = await asyncio.gather(status_of(self._parts.engine), *map(self._outcome, LOOKS))
        return dict(zip(("engine", *LOOKS), found, strict=True))

    async def _outcome(self, name: str) -> str:
        running = self._running.get(name)
        if running is None or running.done():
            loop = asyncio.get_running_loop()
            running = self._running[name] = loop.run_in_executor(self._threads, LOOKS[name], self._parts)
        done, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
        return running.result() if done else SILENT
