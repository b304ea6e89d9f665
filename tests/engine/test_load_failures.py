"""A stitch request that raises is recomputed, exactly, and hurts no other request."""

import asyncio

import pytest
from msgspec.structs import replace

from ragkv.answer.prompt import Prompt
from ragkv.chunk import Chunk
from ragkv.connector.under_way import READING_S
from ragkv.engine.loop import run_in_background
from tests.engine.world import Answered, World, kl, request, whole_context

fails = pytest.mark.parametrize(
    "times", [pytest.param(1, id="recomputed in place"), pytest.param(2, id="computed by vLLM in ordinary steps")]
)


@pytest.fixture
def chunks(exact: World) -> list[Chunk]:
    return exact.model.chunks[:6]


def fail_recomputes(world: World, times: int) -> None:
    run_in_background(world.engine._llm.collective_rpc("fail_recomputes", args=(times,)))


def assert_is_full_prefill(world: World, prompt: Prompt, answered: Answered) -> None:
    full = world.ask(prompt, max_tokens=8, logprobs=-1)
    assert kl(full.logprobs[0], answered.logprobs[0]) <= 0.005
    assert answered.token_ids == full.token_ids


@fails
def test_a_load_that_raises_half_way_becomes_full_prefill(exact: World, chunks: list[Chunk], times: int) -> None:
    """Stitched KV is in the cache already when it raises; nothing of it may be left."""
    prompt, plan = exact.model.prompt(chunks), exact.model.plan(chunks)
    fail_recomputes(exact, times)
    answered = exact.ask(prompt, plan, max_tokens=8, logprobs=-1)
    assert_is_full_prefill(exact, prompt, answered)
    report = answered.report
    assert (report.stitched, report.recomputed, report.cached) == (0, plan.end if times == 1 else 0, 0)
    assert report.recomputed + report.computed == len(prompt.token_ids)
    assert set(report.failed_keys) == {output.key for output in plan.placed}
    assert exact.ask(prompt, plan).report.stitched == plan.end, "the next one is stitched"


def test_kv_that_is_not_read_in_time_is_recomputed_and_holds_nothing_up(exact: World, chunks: list[Chunk]) -> None:
    """A disk that hangs: both readers are at it, and a prompt behind them is late as well."""
    prompt, plan = exact.model.prompt(chunks), exact.model.plan(chunks)
    rpc = exact.engine._llm.collective_rpc
    run_in_background(rpc("wait_for_reads", args=(0.1,)))
    run_in_background(rpc("hold_reads"))

    answered = exact.ask(prompt, plan, max_tokens=8, logprobs=-1)

    assert_is_full_prefill(exact, prompt, answered)
    assert (answered.report.stitched, answered.report.recomputed) == (0, plan.end)
    assert set(answered.report.failed_keys) == {placed.key for placed in plan.placed}
    run_in_background(rpc("wait_for_reads", args=(READING_S,)))

    async def next_one() -> Answered:
        asked = asyncio.create_task(exact.answer(request(prompt, plan)))
        await rpc("release_reads")
        return await asked

    assert run_in_background(next_one()).report.stitched == plan.end, "the next one waits for its turn, and is stitched"


def test_kv_of_other_weights_than_the_engines_is_not_stitched(exact: World, chunks: list[Chunk]) -> None:
    prompt, plan = exact.model.prompt(chunks), exact.model.plan(chunks)

    answered = exact.ask(prompt, replace(plan, model="another"), max_tokens=8, logprobs=-1)

    assert_is_full_prefill(exact, prompt, answered)
    assert (answered.report.stitched, answered.report.computed) == (0, len(prompt.token_ids))
    assert exact.ask(prompt, replace(plan, model=exact.model.keys.model)).report.stitched == plan.end


@fails
def test_a_part_behind_cached_blocks_is_recomputed_whole(exact: World, chunks: list[Chunk], times: int) -> None:
    """The region of a stitch request need not begin at the prompt's start."""
    prompt = exact.model.prompt(chunks)
    plan = exact.model.plan(chunks, [whole_context(prompt)])
    shorter = exact.model.plan(chunks[:3], [whole_context(exact.model.prompt(chunks[:3]))])
    salt = f"shared {times}"
    exact.ask(exact.model.prompt(chunks[:3]), shorter, salt=salt)
    fail_recomputes(exact, times)
    answered = exact.ask(prompt, plan, max_tokens=8, logprobs=-1, salt=salt)
    report = answered.report
    assert 0 < report.cached < plan.end
    assert report.recomputed == (plan.end - report.cached if times == 1 else 0)
    assert report.cached + report.recomputed + report.computed == len(prompt.token_ids)
    assert answered.report.failed_keys == (), "no file was to be read"
    assert_is_full_prefill(exact, prompt, answered)


@pytest.mark.parametrize("times", [1, 2])
def test_requests_beside_one_that_fails_answer_as_they_do_alone(exact: World, chunks: list[Chunk], times: int) -> None:
    """Which of them fails is the one whose KV is read first: loading beside the step promises no order."""
    sets = [chunks[:3], chunks[3:]]
    prompts, plans = [exact.model.prompt(c) for c in sets], [exact.model.plan(c) for c in sets]
    full = [exact.ask(prompt, max_tokens=8) for prompt in prompts]
    stitched = [exact.ask(prompt, plan, max_tokens=8) for prompt, plan in zip(prompts, plans, strict=True)]
    fail_recomputes(exact, times)
    answers = exact.ask_all([request(p, plan, max_tokens=8) for p, plan in zip(prompts, plans, strict=True)])
    [failed] = [n for n, answered in enumerate(answers) if answered.report.failed_keys]
    beside = 1 - failed
    assert answers[failed].token_ids == full[failed].token_ids
    assert answers[beside].token_ids == stitched[beside].token_ids
    assert answers[beside].report.stitched == plans[beside].end
