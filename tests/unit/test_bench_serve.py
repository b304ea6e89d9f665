"""Many questions at once: who asks when, what is counted, and what each mode sends."""

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from bench.serving.engine import Context, Serving, check_cache
from bench.serving.load import Plan, closed_loop, measure, percentile, poisson
from ragkv.answer.prompt import Prompt
from ragkv.answer.recompute import Recompute
from ragkv.engine.protocol import Generate
from ragkv.errors import Rejected, Unavailable
from ragkv.settings import Settings
from ragkv.span import Span
from tests.support.echo_engine import EchoEngine

STEP_S = 0.01


class Asked:
    """Answers in three texts, STEP_S apart; every fifth question is not answered."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.at_once = self.most = 0

    async def __call__(self, number: int) -> AsyncGenerator[object, None]:
        self.numbers.append(number)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            for _ in range(3):
                await asyncio.sleep(STEP_S)
                if number % 5 == 4:
                    raise Unavailable("away")
                yield "text"
        finally:
            self.at_once -= 1


def test_clients_of_a_closed_loop_ask_every_question_once_and_wait_for_answers():
    asked, steps = Asked(), []
    seen = asyncio.run(closed_loop(asked, range(10, 30), 4, lambda: steps.append(1)))

    assert sorted(asked.numbers) == list(range(10, 30))
    assert (asked.most, len(steps), seen.errors) == (4, 20, 4)
    assert len(seen.first_s) == 16
    assert len(seen.between) == 2 * 16
    assert min(seen.first_s + seen.between) >= STEP_S * 0.9
    assert seen.per_second == pytest.approx(16 / seen.seconds)


def test_questions_that_arrive_do_not_wait_for_answers():
    asked = Asked()
    began = time.perf_counter()
    seen = asyncio.run(poisson(asked, range(40), 1000.0, 0, lambda: None))

    assert asked.numbers == list(range(40))
    assert asked.most > 4
    assert seen.seconds <= time.perf_counter() - began
    assert (len(seen.first_s), seen.errors) == (32, 8)


def test_a_service_that_answers_nothing_is_not_measured():
    async def away(number: int) -> AsyncGenerator[object, None]:
        raise Unavailable("no service answers")
        yield number

    plan = Plan(clients=1, rate=None, context=0, answer=2, questions=2, rounds=1, modes=("stitched", "full"))
    with pytest.raises(Unavailable, match="no service answers"):
        asyncio.run(measure(dict.fromkeys(plan.modes, away), plan, 2, lambda mode: None))


def test_percentiles_are_by_nearest_rank():
    assert [percentile(range(1, 101), percent) for percent in (50, 95, 99)] == [50, 95, 99]
    assert percentile([7.0], 99) == 7.0


class Recording(EchoEngine):
    def __init__(self) -> None:
        super().__init__(Settings())
        self.requests: list[Generate] = []

    async def generate(self, request):
        self.requests.append(request)
        async for output in super().generate(request):
            yield output


def prompt(first: int) -> Prompt:
    return Prompt((first, 1, 2, 3), Span(0, 1), (Span(1, 3),), Span(3, 4))


def test_only_the_cached_mode_uses_a_salt_again_and_its_warm_ups_fill_it():
    engine = Recording()
    contexts = [Context((), (prompt(10 * n), prompt(10 * n + 1))) for n in range(3)]
    serving = Serving(engine, None, None, Recompute("none", 0.0, 16), contexts)
    plan = Plan(clients=3, rate=None, context=100, answer=4, questions=6, rounds=2, modes=("full", "cached"))
    told: list[str] = []

    async def measured():
        await engine.start()
        return await serving.measure(plan, told.append)

    rows = {row.mode: row for row in asyncio.run(measured())}

    assert len(told) == 2 * 12
    warm_ups = 3 + 2 * 3  # in full once, cached before each of its rounds
    assert len(engine.requests) == 2 * 12 + warm_ups
    salts = [request.salt for request in engine.requests]
    assert len(set(salts)) == 15 + 3
    for row in rows.values():
        assert (row.questions, row.clients, row.errors, row.context_tokens) == (12, 3, 0, 3)
        assert 0 < row.ttft_p50_s <= row.ttft_p95_s <= row.ttft_p99_s
        assert row.qps > 0


def test_contexts_that_the_engines_cache_does_not_hold_are_not_measured_as_cached():
    contexts = [Context((), (prompt(number),)) for number in range(3)]
    check_cache(contexts, 12)
    with pytest.raises(
        Rejected, match="--mode cached needs 12 tokens in the engine's cache, which holds 11: give fewer"
    ):
        check_cache(contexts, 11)
