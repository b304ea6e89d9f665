"""The oracle: recomputing everything is full prefill. It runs first and is never loosened."""

import random
from pathlib import Path

import msgspec
import pytest
import torch

from ragkv.answer.prompt import Prompt
from ragkv.engine.loop import run_in_background
from ragkv.kv.file import PlainKV
from ragkv.stitch.plan import EngineSelection, StitchPlan
from tests.engine.reference import divergence_from_mixture
from tests.engine.world import World, kl, request, whole_context
from tests.support.made_kv import stored_kv

NUM_PROMPTS = 20
CHUNKS_A_PROMPT = 3
FLOAT32_BOUND, BFLOAT16_BOUND = 1e-5, 0.012
"""Nats. In float32 a single token or layer left as it was stitched exceeds it."""


def prompts_of(world: World) -> list[tuple[Prompt, StitchPlan, str]]:
    """Prompts with the plan that recomputes everything, and a name: every chunk in many places, none in its document's
    order."""
    draw = random.Random(7)
    prompts = []
    for number in range(NUM_PROMPTS):
        chunks = [world.model.chunks[i] for i in draw.sample(range(len(world.model.chunks)), CHUNKS_A_PROMPT)]
        prompt = world.model.prompt(chunks)
        prompts.append((prompt, world.model.plan(chunks, [whole_context(prompt)]), f"oracle {number}"))
    return prompts


@pytest.mark.parametrize(("fixture", "tolerance"), [("exact", FLOAT32_BOUND), ("served", BFLOAT16_BOUND)])
def test_recomputing_everything_gives_full_prefills_next_token_distribution(
    fixture: str, tolerance: float, request: pytest.FixtureRequest
) -> None:
    """KL over the whole vocabulary, 20 prompts."""
    world: World = request.getfixturevalue(fixture)
    divergences = []
    for prompt, plan, name in prompts_of(world):
        full = world.ask(prompt, logprobs=-1, salt=f"{name}, full")
        recomputed = world.ask(prompt, plan, logprobs=-1, salt=f"{name}, recomputed")
        assert recomputed.report.recomputed == whole_context(prompt).num_tokens
        divergences.append(kl(full.logprobs[0], recomputed.logprobs[0]))
    print(f"\n{fixture}: KL max {max(divergences):.2e}, mean {sum(divergences) / len(divergences):.2e}")
    assert max(divergences) <= tolerance


def test_recomputing_everything_gives_full_prefills_greedy_answer(exact: World) -> None:
    """In float32, token by token, over the KV that the test above left in vLLM's own cache, if it ran."""
    prompts = prompts_of(exact)
    full = exact.ask_all([request(prompt, max_tokens=16, salt=f"{name}, full") for prompt, _, name in prompts])
    recomputed = exact.ask_all(
        [request(prompt, plan, max_tokens=16, salt=f"{name}, recomputed") for prompt, plan, name in prompts]
    )
    assert [one.token_ids for one in recomputed] == [one.token_ids for one in full]


def test_recomputing_a_part_is_what_transformers_gives_over_the_same_mixture(exact: World) -> None:
    """Blocks that the question selects, over several tokens of the answer; with other spans it is something else."""
    chunks = exact.model.chunks[3:8]
    prompt = exact.model.prompt(chunks)
    plan = msgspec.structs.replace(exact.model.plan(chunks), selection=EngineSelection("question", 0.1, 4))
    answered = exact.ask(prompt, plan, max_tokens=4, logprobs=-1)
    spans = answered.report.recomputed_spans
    assert len(spans) > 3, "several spans, each amid what is stitched"

    assert divergence_from_mixture(exact, chunks, spans, answered) <= FLOAT32_BOUND
    assert divergence_from_mixture(exact, chunks, spans[1:], answered) > 10 * FLOAT32_BOUND


def test_a_chunk_at_its_original_position_holds_the_engines_own_kv(exact: World, tmp_path: Path) -> None:
    """Right behind the prefix, where it was prefilled, stitched KV is what the engine computes itself."""
    model, rpc = exact.model, exact.engine._llm.collective_rpc
    chunk = model.chunks[3]
    own, rotated = tmp_path / "own.pt", tmp_path / "rotated.pt"
    stored = stored_kv(model.store, model.keys.chunk(chunk.token_ids), model.layout)
    start = len(model.keys.prefix_ids)
    torch.save(stored.keys, rotated)
    run_in_background(rpc("save_own_kv", args=([*model.keys.prefix_ids, *chunk.token_ids], str(own))))
    run_in_background(rpc("rotate_file", args=(str(rotated), start)))
    for layer, ((key, value), stitched) in enumerate(zip(torch.load(own), torch.load(rotated), strict=True)):
        assert_same(stitched, key[start:], f"keys of layer {layer}")
        assert_same(stored.values[layer], value[start:], f"values of layer {layer}")


def assert_same(stitched: torch.Tensor, own: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(stitched, own.view(stitched.shape), atol=2e-3, rtol=2e-3, msg=lambda m: f"{what}: {m}")


def test_stitching_without_recompute_is_not_full_prefill(exact: World) -> None:
    """The oracle can fail: chunks that never saw each other give another distribution."""
    chunks = exact.model.chunks[:6]
    prompt = exact.model.prompt(chunks)
    full = exact.ask(prompt, logprobs=-1)
    stitched = exact.ask(prompt, exact.model.plan(chunks), logprobs=-1)
    assert kl(full.logprobs[0], stitched.logprobs[0]) > 0.005


def test_kv_files_are_whole(exact: World) -> None:
    """What was written is what is read, in the layout's shape."""
    model = exact.model
    kv = stored_kv(model.store, model.keys.chunk(model.chunks[0].token_ids), model.layout)
    assert isinstance(kv, PlainKV)
    assert kv.num_tokens == model.chunks[0].num_tokens
