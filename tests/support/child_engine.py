"""An engine without a model whose core is a real process: it can be killed and stopped like vLLM's."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import ClassVar

from ragkv.engine.protocol import EngineLost, Generate, Output, Report
from ragkv.errors import Unavailable

# Reads "REQUEST NUMBER_OF_WORDS" and "probe"; says "REQUEST WORD" for each word, one step a word, and "probe".
CORE = """
import sys, threading, time
def answer(name, words):
    for i in range(int(words)):
        time.sleep(float(sys.argv[1]))
        print(name, i, flush=True)
    print(name, "end", flush=True)
print("core", "ready", flush=True)
for line in sys.stdin:
    if line.startswith("probe"):
        print("probe", "ok", flush=True)
    else:
        threading.Thread(target=answer, args=line.split(), daemon=True).start()
"""
POISON = "poison"
"""A request with this salt kills the core."""


class ChildEngine:
    """Keeps supervision's contract of a replaceable engine. `fails`: the core ends before it is ready."""

    running: ClassVar[set[int]] = set()
    """Cores of all engines of this process that are not gone."""

    def __init__(self, step_s: float = 0.01, *, fails: bool = False) -> None:
        self._arguments = ("-c", "raise SystemExit(1)") if fails else ("-c", CORE, str(step_s))
        self._process: asyncio.subprocess.Process | None = None
        self._queues: dict[str, asyncio.Queue[str]] = {}
        self._names = iter(range(10**6))
        self._reader: asyncio.Task[None] | None = None
        self._lost = False
        self.asked = 0

    async def start(self) -> None:
        assert not self.running, "two cores at once"
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-E", *self._arguments, stdin=pipe, stdout=pipe
        )
        self.running.add(self._process.pid)
        messages = self._queue("core")
        self._reader = asyncio.create_task(self._read(self._process))
        if not await messages.get():
            raise Unavailable("the core ended before it was ready")

    async def stop(self) -> None:
        await self.kill()

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self.running.discard(self._process.pid)
        if self._reader is not None:
            await self._reader

    async def ready(self) -> bool:
        return not self._lost

    async def status(self) -> str:
        return "ok" if await self.ready() else "lost"

    async def probe(self) -> None:
        messages = self._queue("probe")
        self._say("probe 1")
        await messages.get()

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        self.asked += 1
        if request.salt == POISON:
            self.signal(signal.SIGKILL)
        name = f"r{next(self._names)}"
        messages = self._queue(name)
        self._say(f"{name} {request.max_tokens}")
        while (word := await messages.get()) != "end":
            if not word:
                raise EngineLost("the core is gone")
            yield Output(word, (int(word),))
        yield Output("", (), finish_reason="length", report=Report())

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def _say(self, line: str) -> None:
        if self._lost:
            raise EngineLost("the core is gone")
        self._process.stdin.write(f"{line}\n".encode())

    def _queue(self, name: str) -> "asyncio.Queue[str]":
        return self._queues.setdefault(name, asyncio.Queue())

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        async for line in process.stdout:
            name, word = line.decode().split()
            self._queue(name).put_nowait(word)
        self._lost = True
        for queue in self._queues.values():
            queue.put_nowait("")
