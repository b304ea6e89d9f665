"""Supervision of an engine whose core is a separate process: one that dies, hangs or does not start is replaced.

    STARTING --up--> READY --its process died, or no sign of life--> WAITING --delay is over--> STARTING
        `------failed------------------------------------------------^
    any --stop--> STOPPED

The old engine's processes are gone before the next one starts: two models would not fit into memory.
"""

import asyncio
import enum
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Protocol

from ragkv.engine.protocol import Engine, EngineLost, Generate, Output, Prefill
from ragkv.errors import Rejected, Unavailable
from ragkv.observe import metrics

log = logging.getLogger(__name__)

STARTS_IN_S = 60.0
"""Roughly how long an engine takes to start; clients are told to come back no later."""


class ReplaceableEngine(Engine, Protocol):
    """An engine that is started once. Ended by `kill` or `stop`, its generations raise EngineLost."""

    async def probe(self) -> None:
        """Return when the core has answered: it does so between two steps."""

    async def kill(self) -> None:
        """End the engine at once, whatever state it is in. Its processes are gone when this returns."""


class Phase(enum.Enum):
    """State of supervision."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class SupervisionTimes:
    """Seconds. silence: no sign of life for so long is a hang. start: a start that takes longer than this, and than
    `silence`, is one; large models load for minutes. look: between two looks at the engine.

    delays: before the second attempt, the third, and so on; the last one from then on. stable: ready for so long, an
    engine has all its attempts again. patience: how long a lost request waits for the next engine.
    """

    silence: float = 300.0
    start: float = 1800.0
    look: float = 1.0
    delays: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
    stable: float = 120.0
    patience: float = 150.0

    def delay(self, failures: int) -> float:
        return self.delays[min(failures, len(self.delays)) - 1]


class SupervisedEngine:
    """Engine over replaceable ones from `make`, one at a time."""

    def __init__(self, make: Callable[[], ReplaceableEngine], pace: SupervisionTimes | None = None) -> None:
        self._make = make
        self._pace = pace or SupervisionTimes()
        self._phase = Phase.STOPPED
        self._engine: ReplaceableEngine | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._suspected = asyncio.Event()
        self._reason = ""
        self._failures = 0  # since an engine was stable
        self._next_at = 0.0
        self._failed_starts = 0
        self._listeners = 0  # requests that wait for their next output
        # When an output came last, or the first of the listeners began to wait: not when one gave up.
        self._heard_at = 0.0

    async def start(self) -> None:
        """Returns when an engine answers. Raises Unavailable if the first attempt fails; others follow until `stop`."""
        first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep_running(first_start))
        await first_start

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        if self._engine is not None:
            await self._engine.stop()
        await self._enter(Phase.STOPPED)

    async def ready(self) -> bool:
        return self._phase is Phase.READY and self._engine is not None and await self._engine.ready()

    async def status(self) -> str:
        """`ok`, or where the restart stands."""
        if self._phase is Phase.READY:
            return "ok" if await self.ready() else "its process died: it will be restarted in a moment"
        again = f" again after {self._reason}, attempt {self._failures + 1}" if self._failures else ""
        match self._phase:
            case Phase.STARTING:
                return f"starting{again}"
            case Phase.WAITING:
                return f"starting{again}, next in {max(self._next_at - time.monotonic(), 0):.0f} s"
            case _:
                return "not started"

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        """See Engine.generate. Asked again once if the engine is lost before the first output."""
        lost = self._engine

        async with aclosing(asked_again(lambda: self._attempt(request), lambda: self._another_than(lost))) as outputs:
            async for output in outputs:
                yield output

    async def prefill(self, prefill: Prefill) -> None:
        """See Engine.prefill. Not asked again: ingestion does so."""
        engine = await self._ready_engine()
        try:
            await engine.prefill(prefill)
        except EngineLost:
            self._suspected.set()
            raise

    async def _attempt(self, request: Generate) -> AsyncGenerator[Output, None]:
        engine = await self._ready_engine()
        async with aclosing(engine.generate(request)) as outputs:
            while (output := await self._next(outputs)) is not None:
                yield output

    async def _next(self, outputs: AsyncGenerator[Output, None]) -> Output | None:
        """The next output. Waiting for it is listening to the engine; a client that does not read is not."""
        if not self._listeners:
            self._heard_at = time.monotonic()
        self._listeners += 1
        try:
            output = await anext(outputs, None)
        except EngineLost as error:
            self._suspected.set()
            raise EngineLost("the engine was lost while answering: ask again in a minute", STARTS_IN_S) from error
        finally:
            self._listeners -= 1
        self._heard_at = time.monotonic()
        return output

    async def _ready_engine(self) -> ReplaceableEngine:
        if self._phase is not Phase.READY or self._engine is None:
            raise await self._away()
        return self._engine

    async def _away(self) -> Unavailable:
        wait = STARTS_IN_S
        if self._phase is Phase.WAITING:
            wait = min(wait, max(self._next_at - time.monotonic(), 0) + STARTS_IN_S / 2)
        return Unavailable(f"the engine is not available ({await self.status()}): ask again in a minute", wait)

    async def _another_than(self, lost: ReplaceableEngine | None) -> None:
        """Wait for the next engine. Raises Unavailable if its first attempt fails or takes too long."""
        failed = self._failed_starts

        def decided() -> bool:
            gave_up = self._phase is Phase.STOPPED or self._failed_starts > failed
            return gave_up or (self._phase is Phase.READY and self._engine is not lost)

        with suppress(TimeoutError):
            async with self._changed, asyncio.timeout(self._pace.patience):
                await self._changed.wait_for(decided)
        if self._phase is not Phase.READY or self._engine is lost:
            raise await self._away()

    async def _enter(self, phase: Phase) -> None:
        async with self._changed:
            self._phase = phase
            self._changed.notify_all()

    async def _keep_running(self, first_start: "asyncio.Future[None]") -> None:
        while True:
            await self._enter(Phase.STARTING)
            engine = self._make()
            try:
                self._engine = engine
                await self._start(engine)
            except Exception as error:  # whatever it is: the service must not stay without an engine
                log.exception("the engine did not start; it will be started again")
                self._failed_starts += 1
                refusal = f": {error}" if isinstance(error, Rejected) else ""
                await self._replace_after(engine, f"it did not start{refusal}")
                if not first_start.done():
                    first_start.set_exception(error if isinstance(error, Unavailable) else Unavailable(str(error)))
            else:
                await self._enter(Phase.READY)
                if not first_start.done():
                    first_start.set_result(None)
                began = time.monotonic()
                reason = await self._until_lost(engine)
                if time.monotonic() - began >= self._pace.stable:
                    self._failures = 0
                log.error("the engine was lost: %s; it will be started again", reason)
                await self._replace_after(engine, reason)
            await asyncio.sleep(self._next_at - time.monotonic())
            metrics.engine_restarts.inc()

    async def _start(self, engine: ReplaceableEngine) -> None:
        """Start the engine. Raises what it does, and Unavailable if it takes too long."""
        limit = max(self._pace.start, self._pace.silence)
        try:
            async with asyncio.timeout(limit):
                await engine.start()
        except TimeoutError as error:
            raise Unavailable(f"the engine did not start within {limit:.0f} s") from error

    async def _replace_after(self, engine: ReplaceableEngine, reason: str) -> None:
        """Put an engine that failed out of the way and set the time of the next attempt."""
        self._failures, self._reason = self._failures + 1, reason
        self._next_at = time.monotonic() + self._pace.delay(self._failures)
        await self._enter(Phase.WAITING)
        try:
            await engine.kill()
        except Exception:  # as above; what is left of it may keep the next one from starting, which is tried again
            log.exception("the engine that failed was not put out of the way")
        self._engine = None

    async def _until_lost(self, engine: ReplaceableEngine) -> str:
        """Returns the reason once the engine is lost."""
        answered_at = self._heard_at = time.monotonic()
        probe: asyncio.Task[None] | None = None
        try:
            while await engine.ready():
                seen_at = time.monotonic()
                if probe is None or probe.done():
                    failed = probe is not None and (probe.cancelled() or probe.exception())
                    answered_at = answered_at if failed else seen_at
                    probe = asyncio.create_task(engine.probe())
                if seen_at - answered_at > self._pace.silence:
                    return f"it did not respond for {self._pace.silence:.0f} s"
                if self._listeners and seen_at - self._heard_at > self._pace.silence:
                    return f"it produced no token for {self._pace.silence:.0f} s"
                self._suspected.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._suspected.wait(), self._pace.look)
            return "its process died"
        finally:
            if probe is not None:
                probe.cancel()


async def asked_again(
    attempt: Callable[[], AsyncGenerator[Output, None]], recovered: Callable[[], Awaitable[None]], refusals: int = 0
) -> AsyncGenerator[Output, None]:
    """The outputs of `attempt`; those of another one if EngineLost came before the first output.

    Once only after an engine that had taken the request: the request may have been what ended it. After one that was
    away, as often as `refusals` says. recovered: returns when it is worth asking again, or raises Unavailable.
    """
    losses = 0
    while True:
        begun = False
        try:
            async with aclosing(attempt()) as outputs:
                async for output in outputs:
                    begun = True
                    yield output
        except EngineLost as error:
            losses, refusals = losses + error.taken, refusals - (not error.taken)
            if begun or losses > 1 or refusals < 0:
                raise
        else:
            return
        await recovered()
