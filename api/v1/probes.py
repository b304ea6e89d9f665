"""Probes of the service's components, in a separate pool, each with a timeout.

`/readyz` is public, so each probe runs at most once at a time and concurrent callers share its result; a component that
hangs costs one thread, or one task for the engine.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ragkv.service.base.loading import FAILED
from ragkv.service.health import condition
from ragkv.service.parts import Parts
from ragkv.service.statistics.engine import PATIENCE_S, SILENT

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
    """Reads the condition of every component, by its name: "ok", or a description of the problem."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._threads = ThreadPoolExecutor(len(LOOKS), thread_name_prefix="probe")
        self._running: dict[str, asyncio.Future[str]] = {}

    async def look(self) -> dict[str, str]:
        names = ("engine", *LOOKS)
        conditions = dict(zip(names, await asyncio.gather(*map(self._outcome, names)), strict=True))
        return conditions | {"service": FAILED if self._parts.loading.has_failed() else condition.OK}

    async def _outcome(self, name: str) -> str:
        running = self._running.get(name)
        if running is None or running.done():
            running = self._running[name] = (
                asyncio.ensure_future(self._parts.engine.status())
                if name == "engine"
                else asyncio.get_running_loop().run_in_executor(self._threads, LOOKS[name], self._parts)
            )
        done, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
        return running.result() if done else SILENT
