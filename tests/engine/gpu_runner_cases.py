"""Tests that run under tests.engine.gpu_runner alone: test_gpu_runner.py starts them."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from ragkv.answer.prompt import Prompt
from ragkv.chunk import Chunk
from ragkv.engine.loop import run_in_background
from ragkv.settings import Settings
from ragkv.span import Span
from tests.engine.conftest import started
from tests.engine.test_load_failures import (
    chunks,
    test_a_load_that_raises_half_way_becomes_full_prefill,
    test_a_part_behind_cached_blocks_is_recomputed_whole,
)
from tests.engine.test_under_way import (
    test_a_question_that_ends_while_it_is_stitched_leaves_room_and_blocks,
    test_answers_beside_stitches_are_those_given_alone,
    test_what_an_ended_question_left_is_nearer_to_full_prefill_than_planned,
)
from tests.engine.tiny import config_of, save_tiny
from tests.engine.world import Answered, Model, World, kl, request, whole_context

__all__ = [
    "chunks",
    "test_a_load_that_raises_half_way_becomes_full_prefill",
    "test_a_part_behind_cached_blocks_is_recomputed_whole",
    "test_a_question_that_ends_while_it_is_stitched_leaves_room_and_blocks",
    "test_answers_beside_stitches_are_those_given_alone",
    "test_what_an_ended_question_left_is_nearer_to_full_prefill_than_planned",
]

BLOCK = 128
"""Tokens of a cache block: of so many, few requests fill a small cache and then need more."""


@pytest.fixture(scope="module")
def exact(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A tiny Llama in float32, with a cache of 24 blocks."""
    home = tmp_path_factory.mktemp("gpu-runner")
    settings = Settings(
        data_dir=home / "data", model=str(save_tiny(config_of("Llama 3, llama3"), language_model, home / "model")),
        dtype="float32", chunk_tokens=96, max_model_len=2816, kv_cache_gib=0.006,
    )  # fmt: skip
    world = started(settings, 24, worker_extension_cls="tests.engine.peek.Peek", block_size=BLOCK)
    yield world
    world.stop()


def test_it_is_the_runner_of_gpus_with_asynchronous_scheduling(exact: World) -> None:
    [(module, asynchronous)] = run_in_background(exact.engine._llm.collective_rpc("runner"))
    assert (module, asynchronous) == ("vllm.v1.worker.cpu.model_runner", True), "the V2 runner's subclass for CPUs"


def test_recomputing_everything_is_full_prefill(exact: World) -> None:
    for start in range(3):
        chunks = exact.model.chunks[start : start + 4]
        prompt = exact.model.prompt(chunks)
        full = exact.ask(prompt, logprobs=-1, max_tokens=4)
        recomputed = exact.ask(prompt, exact.model.plan(chunks, [whole_context(prompt)]), logprobs=-1, max_tokens=4)
        stitched = exact.ask(prompt, exact.model.plan(chunks), logprobs=-1)
        assert max(map(kl, full.logprobs, recomputed.logprobs)) <= 1e-3
        assert recomputed.token_ids == full.token_ids
        assert kl(full.logprobs[0], stitched.logprobs[0]) > 0.01, "nothing recomputed is something else"


def test_scattered_spans_read_their_context_once(exact: World) -> None:
    """And answer as if each had read it by itself."""
    chunks = exact.model.chunks[:12]
    prompt = exact.model.prompt(chunks)
    scattered = [Span(start, start + 4) for start in range(40, prompt.question.start - 4, 20)]
    plan = exact.model.plan(chunks, scattered)

    def asked(least_saved: int) -> tuple[Answered, int]:
        tokens_read = partial(exact.engine._llm.collective_rpc, "read_contexts_once", args=(least_saved,))
        [earlier] = run_in_background(tokens_read())
        answered = exact.ask(prompt, plan, logprobs=-1)
        [later] = run_in_background(tokens_read())
        return answered, later - earlier

    alone, read_alone = asked(2**31)
    asked(1)  # the first layer of all compares both
    once, read_once = asked(1)
    assert once.report.recomputed_spans == alone.report.recomputed_spans == tuple(scattered)
    assert kl(alone.logprobs[0], once.logprobs[0]) < 1e-6
    assert read_once < 0.6 * read_alone


def test_what_is_timed_in_a_later_step_is_in_the_report(exact: World) -> None:
    """And the request goes on before: on a GPU its own work is launched while KV is still written."""
    run_in_background(exact.engine._llm.collective_rpc("time_as_on_gpus"))
    chunks = exact.model.chunks[:4]
    prompt = exact.model.prompt(chunks)
    recomputed = exact.ask(prompt, exact.model.plan(chunks, [whole_context(prompt)]), max_tokens=4)
    stitched = exact.ask(prompt, exact.model.plan(chunks), max_tokens=4)
    at_its_end = exact.ask(prompt, exact.model.plan(chunks, [whole_context(prompt)]), max_tokens=1)
    assert recomputed.report.recompute_ms > stitched.report.recompute_ms == 0
    assert at_its_end.report.recompute_ms == 0, "its times come with its only token, and too late"


def test_preempted_requests_are_stitched_again_and_answer_the_same(exact: World) -> None:
    """Prompts of four or five blocks each, which soon need another one."""
    sets = [exact.model.chunks[start : start + 5] for start in range(6)]
    prompts = [ending_with_a_block(exact.model, chunks) for chunks in sets]
    asked = [request(p, exact.model.plan(c), max_tokens=BLOCK // 8) for p, c in zip(prompts, sets, strict=True)]
    alone = [exact.ask_all([each])[0] for each in asked]
    together = exact.ask_all(asked)
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]
    assert max(answer.report.fills for answer in together) > 1, "nobody was preempted: the cache is too large"


@pytest.mark.long
def test_latent_attention_in_steps_and_behind_cached_prefixes(
    language_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A tiny DeepSeek V3, whose prompts vLLM's CPU platform by itself prefills in one step."""
    home = tmp_path_factory.mktemp("latent")
    settings = Settings(
        data_dir=home / "data", model=str(save_tiny(config_of("DeepSeek V3"), language_model, home / "model")),
        dtype="float32", chunk_tokens=96, max_model_len=1024, kv_cache_gib=0.03, max_batched_tokens=128,
    )  # fmt: skip
    world = started(settings, 8, worker_extension_cls="tests.engine.peek.Peek")
    try:
        chunks = world.model.chunks[:4]
        prompt = world.model.prompt(chunks)
        assert len(prompt.token_ids) > 2 * settings.max_batched_tokens
        full = world.ask(prompt, logprobs=-1, max_tokens=4, salt="latent")
        again = world.ask(prompt, logprobs=-1, max_tokens=4, salt="latent")
        recomputed = world.ask(prompt, world.model.plan(chunks, [whole_context(prompt)]), logprobs=-1, max_tokens=4)
        assert again.report.cached > 0
        assert again.token_ids == recomputed.token_ids == full.token_ids
        assert max(map(kl, full.logprobs, recomputed.logprobs)) <= 1e-3
    finally:
        world.stop()


def ending_with_a_block(model: Model, chunks: list[Chunk]) -> Prompt:
    """A prompt that leaves a few tokens free in its last block."""
    prompts = (model.prompt(chunks, "and then " * words + "what?") for words in count(1))
    return next(prompt for prompt in prompts if -len(prompt.token_ids) % BLOCK in range(1, BLOCK // 16))
