"""Inter-token latency of running streams while prompts arrive, stitched or with full prefill."""

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from bench.serving.engine import Serving
from bench.serving.load import Mode, Seen, percentile, poisson
from ragkv.answer.prompt import Prompt
from ragkv.engine.protocol import Generate
from ragkv.errors import Rejected

Arriving = Mode | None
MODES: tuple[Arriving, ...] = (None, "stitched", "full")
_LOOK_EVERY_S = 0.01


class StreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between tokens of the running streams, and to the first token of the prompts that arrive."""

    arriving: str
    streams: int
    prompts: int
    context_tokens: int
    itl_p50_s: float
    itl_p99_s: float
    itl_max_s: float
    ttft_p50_s: float | None
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Streams of a short prompt, and what arrives beside them in each round."""

    serving: Serving
    prompt: Prompt
    streams: int
    tokens: int
    arrivals: int
    arrivals_a_second: float
    answer: int

    async def measure(self, rounds: int, progress: Callable[[str], None]) -> list[StreamRow]:
        """A row for nothing arriving, and for each way of answering what arrives. They take turns; each is done once
        before, uncounted."""
        gaps: dict[Arriving, list[float]] = {mode: [] for mode in MODES}
        seen: dict[Arriving, Seen] = {mode: Seen() for mode in MODES}
        for number in range(rounds + 1):
            for mode in MODES:
                between, arrived = await self._beside(mode, number)
                progress(f"streams while {mode or 'nothing'} arrives")
                if number:
                    gaps[mode] += between
                    seen[mode].add(arrived)
        contexts = self.serving.contexts
        return [
            StreamRow(
                arriving=mode or "nothing",
                streams=self.streams,
                prompts=len(seen[mode].first_s),
                context_tokens=sum(context.prompts[0].question.start for context in contexts) // len(contexts),
                itl_p50_s=percentile(gaps[mode], 50),
                itl_p99_s=percentile(gaps[mode], 99),
                itl_max_s=max(gaps[mode]),
                ttft_p50_s=percentile(seen[mode].first_s, 50) if seen[mode].first_s else None,
                errors=seen[mode].errors,
            )
            for mode in MODES
        ]

    async def _beside(self, mode: Arriving, number: int) -> tuple[list[float], Seen]:
        """Gaps between tokens while prompts arrive, and what their askers saw."""
        moments: list[list[float]] = [[] for _ in range(self.streams)]
        running = [asyncio.create_task(self._stream(stream)) for stream in moments]
        try:
            while not all(moments):
                await asyncio.sleep(_LOOK_EVERY_S)
                if any(task.done() for task in running):
                    await asyncio.gather(*running)
            numbers = range(number * self.arrivals, (number + 1) * self.arrivals)
            began = time.perf_counter()
            if mode is None:
                seen = await asyncio.sleep(self.arrivals / self.arrivals_a_second, Seen())
            else:
                ask = self.serving.ask(mode, self.answer)
                seen = await poisson(ask, numbers, self.arrivals_a_second, number, lambda: None)
            ended = time.perf_counter()
        finally:
            for task in running:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        between = [b - a for stream in moments for a, b in pairwise(stream) if a >= began and b <= ended]
        if not between:
            raise Rejected("the streams ended before anything arrived: the model's window is too short")
        return between, seen

    async def _stream(self, moments: list[float]) -> None:
        request = Generate(self.prompt.token_ids, uuid.uuid4().hex, max_tokens=self.tokens, ignore_eos=True)
        async for _ in self.serving.engine.generate(request):
            moments.append(time.perf_counter())  # noqa: PERF401 - read while it grows
