"""Clients of a service under load, in a closed loop or arriving at random, and what they measure. Independent of
what they ask."""

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise

from ragkv.errors import RagKVError

Ask = Callable[[int], AsyncGenerator[object, None]]
"""Ask the question of a number; yields whenever text arrives. Raises RagKVError for one that is not answered."""


@dataclass(slots=True)
class Seen:
    """Figures of clients: seconds to the first text and between texts, of each question that was answered."""

    seconds: float = 0.0
    first_s: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    errors: int = 0

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
    except RagKVError:
        seen.errors += 1
        return
    if not moments:
        seen.errors += 1
        return
    seen.first_s.append(moments[0] - began)
    seen.between += [later - earlier for earlier, later in pairwise(moments)]


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile by nearest rank."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]
