"""Stitches spread over steps: what runs beside them, what ends early, what asks for the same."""

import asyncio
from contextlib import aclosing

from ragkv.engine.loop import run_in_background
from ragkv.stitch.plan import EngineSelection, StitchPlan, plan_stitch
from tests.engine.world import World, kl, request


def with_a_selection(plan: StitchPlan, ratio: float) -> StitchPlan:
    return plan_stitch(plan.placed, frozenset(), (), EngineSelection("question", ratio, 4))


def test_answers_beside_stitches_are_those_given_alone(exact: World):
    """A running answer, prompts in full and stitched ones, some of which recompute more than a step leaves room for."""
    chunks = exact.model.chunks
    sets = [chunks[:6], chunks[6:12], chunks[12:18], chunks[18:]]
    asked = [
        request(
            exact.model.prompt(some), with_a_selection(exact.model.plan(some), ratio) if ratio else None, max_tokens=24
        )
        for some, ratio in zip(sets, (0.0, 0.1, 0.9, 0.0), strict=True)
    ]
    alone = [exact.ask_all([each])[0] for each in asked]
    fresh = [
        request(exact.model.prompt(some), each.plan, max_tokens=24) for some, each in zip(sets, asked, strict=True)
    ]
    together = exact.ask_all(fresh)
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert [each.report.recomputed for each in together] == [each.report.recomputed for each in alone]
    assert [each.report.stitched > 0 for each in together] == [False, True, True, False]
    assert [each.report.recomputed > 0 for each in together] == [False, True, True, False]


def test_a_question_that_ends_while_it_is_stitched_leaves_room_and_blocks(exact: World):
    """Its blocks are freed and used again: nothing is written to them any more, though its KV is read by and by."""
    chunks = exact.model.chunks
    prompt, plan = exact.model.prompt(chunks), with_a_selection(exact.model.plan(chunks), 0.9)
    other, other_plan = exact.model.prompt(chunks[:8]), exact.model.plan(chunks[:8])
    expected = exact.ask(other, other_plan, max_tokens=8).token_ids
    rpc = exact.engine._llm.collective_rpc

    async def until_any_is_under_way(*, is_any: bool) -> None:
        async with asyncio.timeout(120):
            while await rpc("any_under_way") != [is_any]:
                pass

    async def ended() -> None:
        async def asked() -> None:
            async with aclosing(exact.engine.generate(request(prompt, plan))) as outputs:
                async for _ in outputs:
                    return

        await rpc("hold_reads")
        tasks = [asyncio.create_task(asked()) for _ in range(4)]
        await until_any_is_under_way(is_any=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until_any_is_under_way(is_any=False)
        await rpc("release_reads")

    for _ in range(3):
        run_in_background(ended())
        assert exact.ask(other, other_plan, max_tokens=8).token_ids == expected


def test_what_an_ended_question_left_is_nearer_to_full_prefill_than_planned(exact: World):
    """Its file was lost: whoever asks the same reads the recomputed chunk, though its own plan and report name none."""
    chunks = exact.model.chunks[:5]
    prompt, plan = exact.model.prompt(chunks), exact.model.plan(chunks)
    lost = plan.placed[3]

    async def begun() -> None:
        async with aclosing(exact.engine.generate(request(prompt, plan, salt="left", max_tokens=64))) as outputs:
            await anext(outputs)

    exact.model.store.drop([lost.key])
    run_in_background(begun())
    exact.ingest(chunks)
    after = exact.ask(prompt, plan, salt="left", max_tokens=8, logprobs=-1)
    as_planned = exact.ask(prompt, plan, logprobs=-1)
    recomputed = exact.ask(prompt, exact.model.plan(chunks, [lost.span]), max_tokens=8, logprobs=-1)
    assert after.report.cached > lost.span.end
    assert after.report.failed_keys == ()
    assert max(map(kl, recomputed.logprobs, after.logprobs)) < 1e-6 < kl(as_planned.logprobs[0], after.logprobs[0])
    assert after.token_ids == recomputed.token_ids


def test_the_same_prompt_at_once_is_stitched_once(exact: World):
    chunks = exact.model.chunks[:8]
    prompt, plan = exact.model.prompt(chunks), exact.model.plan(chunks)
    answers = exact.ask_all([request(prompt, plan, max_tokens=4, salt="the same") for _ in range(4)])
    assert len({each.token_ids for each in answers}) == 1
    first, *others = sorted(answers, key=lambda each: each.report.cached)
    assert (first.report.cached, first.report.stitched) == (0, plan.end)
    assert all(each.report.cached > plan.end - 64 for each in others)
