"""The load on a service and its clients' figures, mode by mode."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from bench.serving.load import Ask, Seen, closed_loop, percentile, poisson

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


async def measure(
    asks: Mapping[Mode, Ask], plan: Plan, warm_up: int, progress: Callable[[Mode], None]
) -> dict[Mode, Seen]:
    """Figures of the clients of each mode. Modes take turns within a round, so that a machine that slows down slows all
    of them.

    The first `warm_up` numbers are asked once in each mode and not counted; in `cached` before every round, for the
    other modes' prompts have taken the place of its own in the engine's cache.
    """
    seen = {mode: Seen() for mode in asks}

    async def warm(ask: Ask) -> None:
        await closed_loop(ask, range(warm_up), plan.clients, lambda: None)

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
