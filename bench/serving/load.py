"""Clients of a service under load, in a closed loop or arriving at random, and what they measure, mode by mode.
Independent of what they ask."""

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, get_args

import msgspec

from ragkv.errors import RagKVError

Ask = Callable[[int], AsyncGenerator[object, None]]
"""Ask the question of a number; yields whenever text arrives. Raises RagKVError for one that is not answered."""


@dataclass(slots=True)
class Seen:
    """Figures of clients: seconds to the first text and between texts, of each question that was answered. error: why
    the last of the others was not, where that was said."""

    seconds: float = 0.0
    first_s: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    errors: int = 0
    error: RagKVError | None = None

    def add(self, other: "Seen") -> None:
        """Take in what was seen in another round."""
        self.seconds += other.seconds
        self.first_s += other.first_s
        self.between += other.between
        self.errors += other.errors

    @property
    def per_second(self) -> float:
        """Questions answered in a second."""
        return len(self.first_s) / self.seconds


async def closed_loop(ask: Ask, numbers: Sequence[int], clients: int, progress: Callable[[], None]) -> Seen:
    """Each client asks one question after the other, as long as there are some."""
    left, seen = iter(numbers), Seen()

    async def client() -> None:
        for number in left:
            await _asked(ask, number, seen)
            progress()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seen.seconds = time.perf_counter() - began
    return seen


async def poisson(ask: Ask, numbers: Sequence[int], rate: float, seed: int, progress: Callable[[], None]) -> Seen:
    """Questions arrive at random, `rate` a second in the mean, whether or not earlier ones are answered."""
    arrivals, seen = random.Random(seed), Seen()  # noqa: S311 - not for secrets

    async def arrived(number: int) -> None:
        await _asked(ask, number, seen)
        progress()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as asking:
        for number in numbers:
            asking.create_task(arrived(number))
            await asyncio.sleep(arrivals.expovariate(rate))
    seen.seconds = time.perf_counter() - began
    return seen


async def _asked(ask: Ask, number: int, seen: Seen) -> None:
    began = time.perf_counter()
    moments: list[float] = []
    try:
        async with aclosing(ask(number)) as texts:
            moments += [time.perf_counter() async for _ in texts]
    except RagKVError as error:
        seen.errors += 1
        seen.error = error
        return
    if not moments:
        seen.errors += 1
        return
    seen.first_s.append(moments[0] - began)
    seen.between += [later - earlier for earlier, later in pairwise(moments)]


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile by nearest rank."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


Mode = Literal["stitched", "full", "cached"]
MODES: tuple[Mode, ...] = get_args(Mode)


class ServeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One mode. `clients`: null for questions that arrive at random, `rate` otherwise. Seconds; null where nothing was
    answered."""

    mode: Mode
    clients: int | None
    rate: float | None
    context_tokens: int
    questions: int
    qps: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None
    errors: int


class ServeReport(msgspec.Struct, frozen=True):
    """The report of `ragkv bench serve --json`."""

    model: str
    machine: str
    rows: list[ServeRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A load: `questions` of each mode in each of `rounds`, by `clients` in a closed loop or at `rate` a second."""

    clients: int
    rate: float | None
    context: int
    answer: int
    questions: int
    rounds: int
    modes: tuple[Mode, ...]

    @property
    def total(self) -> int:
        """Questions of all modes in all rounds."""
        return self.questions * self.rounds * len(self.modes)


async def measure(
    asks: Mapping[Mode, Ask], plan: Plan, warm_up: int, progress: Callable[[Mode], None]
) -> dict[Mode, Seen]:
    """Figures of the clients of each mode. Modes take turns within a round, so that a machine that slows down slows all
    of them.

    The first `warm_up` numbers are asked once in each mode and not counted; in `cached` before every round, for the
    other modes' prompts have taken the place of its own in the engine's cache. Raises as `Ask` does where no question
    of a warm-up is answered: then there is nothing to measure.
    """
    seen = {mode: Seen() for mode in asks}

    async def warm(ask: Ask) -> None:
        warmed = await closed_loop(ask, range(warm_up), plan.clients, lambda: None)
        if warmed.error is not None and not warmed.first_s:
            raise warmed.error

    for mode, ask in asks.items():
        if mode != "cached":
            await warm(ask)
    for number in range(plan.rounds):
        start = warm_up + number * plan.questions
        for mode, ask in asks.items():
            if mode == "cached":
                await warm(ask)
            numbers, advance = range(start, start + plan.questions), lambda mode=mode: progress(mode)
            if plan.rate is None:
                seen[mode].add(await closed_loop(ask, numbers, plan.clients, advance))
            else:
                seen[mode].add(await poisson(ask, numbers, plan.rate, number, advance))
    return seen


def row_of(mode: Mode, seen: Seen, plan: Plan, context_tokens: int) -> ServeRow:
    first_s, between = (
        [percentile(values, percent) if values else None for percent in (50, 95, 99)]
        for values in (seen.first_s, seen.between)
    )
    return ServeRow(
        mode=mode,
        clients=plan.clients if plan.rate is None else None,
        rate=plan.rate,
        context_tokens=context_tokens,
        questions=plan.questions * plan.rounds,
        qps=seen.per_second,
        ttft_p50_s=first_s[0],
        ttft_p95_s=first_s[1],
        ttft_p99_s=first_s[2],
        itl_p50_s=between[0],
        itl_p99_s=between[2],
        errors=seen.errors,
    )
