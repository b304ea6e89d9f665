"""Other architectures, tiny and with random weights: what is stitched must not depend on one model's code."""

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from pathlib import Path

import msgspec
import pytest
from prometheus_client import REGISTRY

from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk
from ragkv.engine.local import LocalEngine
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import EngineLost, Generate, Output, Sampling
from ragkv.engine.wire import plan_to_wire
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.plan import EngineSelection
from tests.engine.conftest import STEP_TOKENS
from tests.engine.reference import divergence_from_mixture
from tests.engine.tiny import IN_SMALL_STEPS, OFTEN
from tests.engine.world import Answered, Model, World, kl, request, stitched_elsewhere, whole_context

ONE_TOKEN_A_STEP, GUESSING = "Llama 3, llama3", "Qwen3, yarn"
IN_ONE_STEP = "DeepSeek V3"
"""vLLM's CPU platform has prompts of latent attention prefilled in one step, however long."""
MIXTURE_BOUND = 1e-5
"""Nats."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test with both, and the long way with families of other kinds of attention, unless it names others."""
    if metafunc.definition.get_closest_marker("parametrize") is None:
        without = {*OFTEN, IN_ONE_STEP} if "longer_than_a_step" in metafunc.definition.name else OFTEN
        others = [pytest.param(name, marks=pytest.mark.long) for name in IN_SMALL_STEPS if name not in without]
        metafunc.parametrize("tiny", [ONE_TOKEN_A_STEP, GUESSING, *others], indirect=True)


def test_recomputing_everything_is_full_prefill(tiny: World) -> None:
    """Over more tokens than one step may hold."""
    for start in range(4):
        chunks = tiny.model.chunks[start : start + 4]
        prompt = tiny.model.prompt(chunks)
        full = tiny.ask(prompt, logprobs=-1, max_tokens=8)
        recomputed = tiny.ask(prompt, tiny.model.plan(chunks, [whole_context(prompt)]), logprobs=-1, max_tokens=8)
        assert recomputed.report.recomputed == whole_context(prompt).num_tokens
        assert kl(full.logprobs[0], recomputed.logprobs[0]) <= 0.005
        assert recomputed.token_ids == full.token_ids


def test_recomputing_a_part_is_what_transformers_gives_over_the_same_mixture(tiny: World) -> None:
    chunks = tiny.model.chunks[:4]
    prompt = tiny.model.prompt(chunks)
    spans = [Span(span.start + 8, span.end - 4) for span in prompt.chunks[1:]]
    answered = tiny.ask(prompt, tiny.model.plan(chunks, spans), max_tokens=3, logprobs=-1)

    assert divergence_from_mixture(tiny, chunks, spans, answered) <= MIXTURE_BOUND
    assert divergence_from_mixture(tiny, chunks, spans[:-1], answered) > 10 * MIXTURE_BOUND


def test_a_single_chunk_stitched_behind_its_prefix_is_full_prefill(tiny: World) -> None:
    """Ingestion and engine agree on every layer: nothing is recomputed here."""
    for chunk in tiny.model.chunks[:4]:
        prompt = tiny.model.prompt([chunk])
        full = tiny.ask(prompt, logprobs=-1, max_tokens=8)
        stitched = tiny.ask(prompt, tiny.model.plan([chunk]), logprobs=-1, max_tokens=8)
        assert stitched.report.stitched == prompt.question.start
        assert kl(full.logprobs[0], stitched.logprobs[0]) <= 0.005
        assert stitched.token_ids == full.token_ids


def test_a_chunk_far_from_where_it_was_prefilled_is_turned_to_its_position(tiny: World) -> None:
    """By the connector's own write, into every layer."""
    assert max(stitched_elsewhere(tiny, chunk) for chunk in tiny.model.chunks[:3]) <= 2e-3


def test_kv_written_a_few_chunks_at_a_time_is_the_same(tiny: World) -> None:
    """As on an accelerator, where other requests go on between two parts."""
    chunks = tiny.model.chunks[:3]
    prompt = tiny.model.prompt(chunks)
    params = plan_to_wire(request(prompt, tiny.model.plan(chunks)))
    args = params, list(prompt.token_ids)
    [(is_same, pauses)] = run_in_background(tiny.engine._llm.collective_rpc("written_in_parts", args=args))
    assert is_same
    assert pauses == len(chunks)  # the prefix is a part too


def test_what_is_recomputed_behind_a_stitched_chunk_is_full_prefill(tiny: World) -> None:
    """The first chunk is exact where it stands; with the others recomputed nothing approximate is left."""
    chunks = tiny.model.chunks[:3]
    prompt = tiny.model.prompt(chunks)
    full = tiny.ask(prompt, logprobs=-1)
    recomputed = tiny.ask(prompt, tiny.model.plan(chunks, prompt.chunks[1:]), logprobs=-1)
    assert recomputed.report.stitched == prompt.chunks[0].end
    assert recomputed.report.recomputed == total_tokens(prompt.chunks[1:])
    assert kl(full.logprobs[0], recomputed.logprobs[0]) <= 0.005


def test_a_question_longer_than_a_step_is_prefilled_in_several(tiny: World) -> None:
    """The stitched region is promised once; what follows comes in chunks of the step's size."""
    chunks = tiny.model.chunks[:2]
    prompt = tiny.model.prompts.build(chunks, "and then " * 150 + "?", answer_tokens=8)
    assert prompt.question.num_tokens > 2 * STEP_TOKENS
    full = tiny.ask(prompt, max_tokens=8)
    recomputed = tiny.ask(prompt, tiny.model.plan(chunks, [whole_context(prompt)]), max_tokens=8)
    assert recomputed.report.recomputed == whole_context(prompt).num_tokens
    assert recomputed.token_ids == full.token_ids


def test_a_question_longer_than_a_step_chooses_nothing_and_the_latest_tokens_are_recomputed(tiny: World) -> None:
    chunks = tiny.model.chunks[:2]
    prompt = tiny.model.prompts.build(chunks, "and then " * 150 + "?", answer_tokens=8)
    plan = msgspec.structs.replace(tiny.model.plan(chunks), selection=EngineSelection("question", 0.2, 4))
    [span] = tiny.ask(prompt, plan, max_tokens=4).report.recomputed_spans
    assert span.end == plan.end


@pytest.mark.parametrize(
    "tiny",
    [ONE_TOKEN_A_STEP, *(pytest.param(name, marks=pytest.mark.long) for name in (GUESSING, IN_ONE_STEP))],
    indirect=True,
)
def test_preempted_requests_are_stitched_again_and_answer_the_same(tiny: World) -> None:
    """More requests than the cache holds: some are preempted, lose their blocks, and start over."""
    model = tiny.model
    sets = [model.chunks[start : start + 5] for start in range(7)]
    plans = [model.plan(chunks, model.prompt(chunks).chunks[-2:]) for chunks in sets]
    asked = [request(model.prompt(c), p, max_tokens=200) for c, p in zip(sets, plans, strict=True)]
    alone = [tiny.ask_all([one])[0] for one in asked]
    together = tiny.ask_all(asked)
    assert [a.token_ids for a in together] == [a.token_ids for a in alone]
    assert max(a.report.fills for a in together) > 1, "nobody was preempted: the cache is too large for this test"


@pytest.mark.parametrize("tiny", [ONE_TOKEN_A_STEP], indirect=True)
def test_a_question_is_recomputed_and_answered_alike_whatever_was_asked_before(tiny: World) -> None:
    """Ten questions, asked three times in mixed order: with preemptions, one at a time, and of an engine with room for
    all of them."""
    model, draw = tiny.model, random.Random(3)
    roomy_settings = msgspec.structs.replace(model.settings, kv_cache_gib=10 * model.settings.kv_cache_gib)
    roomy = World(model, LocalEngine(roomy_settings, Path(model.settings.model), model.layout)).start()
    questions = [selecting(model, draw.sample(model.chunks, 5), f"Which {number}?") for number in range(10)]
    try:
        crowded = [asked_in_mixed_order(tiny, questions, draw, at_once=True) for _ in range(3)]
        alone = [asked_in_mixed_order(world, questions, draw, at_once=False) for world in [roomy] * 3]
    finally:
        roomy.stop()
    for question, *answers in zip(questions, *crowded, *alone, strict=True):
        first = next(answer.report for answer in answers if not answer.report.cached)
        assert {answer.token_ids for answer in answers} == {answers[0].token_ids}
        for report in (answer.report for answer in answers):
            end = question.plan.end
            region = Span(min(report.cached, end), end)
            expected = merge(span.clipped_to(region) for span in first.recomputed_spans)
            assert (report.recomputed_spans or ()) == expected
    assert max(answer.report.fills for answer in chain(*crowded)) > 1, "nobody was preempted"
    assert max(answer.report.cached for answer in chain(*alone)) > 0, "nothing was asked again from vLLM's cache"


def selecting(model: Model, chunks: Sequence[Chunk], question: str) -> Generate:
    """A request whose tokens to recompute the engine selects, under the salt that the service gives it."""
    prompt = model.prompt(chunks, question)
    plan = model.planner.plan(prompt, model.located(chunks), Recompute("question", 0.3, 4), None)
    return request(prompt, plan, salt=model.keys.salt(plan.cache_variant), max_tokens=120)


def asked_in_mixed_order(
    world: World, questions: Sequence[Generate], draw: random.Random, *, at_once: bool
) -> list[Answered]:
    """Answers in the questions' order."""
    order = draw.sample(range(len(questions)), len(questions))
    mixed = [questions[number] for number in order]
    answers = world.ask_all(mixed) if at_once else [world.ask_all([question])[0] for question in mixed]
    return [answer for _, answer in sorted(zip(order, answers, strict=True), key=itemgetter(0))]


@pytest.mark.parametrize("tiny", [ONE_TOKEN_A_STEP], indirect=True)
def test_a_seed_gives_the_same_answer_in_however_many_steps_its_prompt_runs(tiny: World) -> None:
    """Tokens that are drawn before the prompt's end are thrown away."""
    prompt = tiny.model.prompt(tiny.model.chunks[:5])
    assert len(prompt.token_ids) > 2 * STEP_TOKENS
    seeded = Sampling(temperature=1.0, seed=7)
    in_steps, at_once = (tiny.ask(prompt, sampling=seeded, salt="seeded", max_tokens=16) for _ in "12")
    assert len(prompt.token_ids) - at_once.report.cached < STEP_TOKENS
    assert in_steps.token_ids == at_once.token_ids


@pytest.mark.parametrize("tiny", [ONE_TOKEN_A_STEP], indirect=True)
def test_an_engine_that_is_told_to_end_gives_no_beginning_as_a_whole_answer(tiny: World) -> None:
    """By a signal, as all processes of a service get it: vLLM ends its answers in good order."""
    model = tiny.model
    ending = World(model, LocalEngine(model.settings, Path(model.settings.model), model.layout)).start()
    said: list[Output] = []

    async def ask() -> None:
        async for output in ending.engine.generate(request(model.prompt(model.chunks[:3]), max_tokens=400)):
            said.append(output)
            os.kill(ending.engine._family.children[0].pid, signal.SIGTERM)

    try:
        with pytest.raises(EngineLost, match="ask again"):
            run_in_background(ask())
    finally:
        ending.stop()
    assert said and not any(output.finish_reason for output in said)


def test_guessed_tokens_are_those_that_one_at_a_time_gives(tiny: World) -> None:
    """Each token is asked for alone, over the same stitched prompt and the answer so far. With three tokens to choose
    from an answer repeats itself, so that there is something to guess."""
    before = guessed_right()
    for start in range(2):
        chunks = tiny.model.chunks[start : start + 3]
        prompt, plan = tiny.model.prompt(chunks), tiny.model.plan(chunks)
        three = prompt.token_ids[100:103]
        answer = tiny.ask(prompt, plan, max_tokens=24, allowed_token_ids=three).token_ids
        for end in range(0, len(answer), 3):
            so_far = replace(prompt, token_ids=(*prompt.token_ids, *answer[:end]))
            assert tiny.ask(so_far, plan, max_tokens=1, allowed_token_ids=three).token_ids == answer[end : end + 1]
    assert (guessed_right() > before) == (tiny.engine._settings.speculative_tokens > 0)


def guessed_right() -> float:
    """Guesses of engines in this process that the model agreed with."""
    found = (sample for metric in REGISTRY.collect() for sample in metric.samples)
    return sum(one.value for one in found if one.name == "vllm:spec_decode_num_accepted_tokens_total")
