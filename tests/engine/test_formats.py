"""Quantised KV in a running engine: the oracle holds, and what it says is near what unquantised KV says."""

import dataclasses
import statistics

import pytest

from ragkv.answer.recompute import Recompute
from ragkv.kv.format import KVFormat
from ragkv.kv.key import KeyMaker
from ragkv.prefill.precompute import precompute
from ragkv.stitch.plan import StitchPlan
from tests.engine.world import World, kl, whole_context

QUANTISED = {KVFormat.INT8: 0.002, KVFormat.INT4: 0.02}
PROMPTS = [(4, 9, 1), (7, 18, 17), (4, 11, 19), (15, 20, 18), (15, 8, 17)]
NOTHING = Recompute("none", 0.0, 4)


def plan_of(world: World, keys: KeyMaker, recompute: Recompute, indices=(4, 9, 1)) -> StitchPlan:
    chunks = [world.model.chunks[index] for index in indices]
    plan = world.model.planner.plan(world.model.prompt(chunks), world.model.located(chunks, keys), recompute, None)
    assert plan is not None
    return plan


@pytest.fixture(params=QUANTISED)
def keys(exact: World, request: pytest.FixtureRequest) -> KeyMaker:
    """Of chunks whose KV is there in this format, made from unquantised files without the model."""
    world = exact.model
    keys = dataclasses.replace(world.keys, kv_format=request.param)

    def no_model():
        pytest.fail("KV that is there is computed again")

    used = sorted({index for indices in PROMPTS for index in indices})
    precompute([world.chunks[index] for index in used], keys, no_model, world.store)
    return keys


def test_recomputing_everything_is_exact(exact: World, keys: KeyMaker) -> None:
    """The oracle, whatever the format: the first chunk is recomputed too, though no policy spends tokens on it."""
    prompt = exact.model.prompt([exact.model.chunks[index] for index in (4, 9, 1)])
    full = exact.ask(prompt, logprobs=-1)

    recomputed = exact.ask(prompt, plan_of(exact, keys, Recompute("question", 1.0, 4)), logprobs=-1)

    assert recomputed.report.recomputed == whole_context(prompt).num_tokens
    assert kl(full.logprobs[0], recomputed.logprobs[0]) <= 0.005


@pytest.mark.parametrize("recompute", [NOTHING, Recompute("question", 0.2, 4)], ids=["nothing", "question"])
def test_it_says_nearly_what_unquantised_kv_says(exact: World, keys: KeyMaker, recompute: Recompute) -> None:
    """The median of five prompts: a block less or more that the question chooses may turn the one answer that hangs on
    it."""
    divergences = []
    for indices in PROMPTS:
        prompt = exact.model.prompt([exact.model.chunks[index] for index in indices])
        plan = plan_of(exact, keys, recompute, indices)
        plain = exact.ask(prompt, plan_of(exact, exact.model.keys, recompute, indices), logprobs=-1)
        quantised = exact.ask(prompt, plan, logprobs=-1)
        assert (quantised.report.failed_keys, plan.num_missing) == ((), 0)
        divergences.append(kl(plain.logprobs[0], quantised.logprobs[0]))

    print(f"\n{keys.kv_format}: {divergences}")
    assert 0 < statistics.median(divergences) <= QUANTISED[keys.kv_format]
    if recompute is NOTHING:
        assert max(divergences) <= QUANTISED[keys.kv_format]


def test_where_one_chunk_is_not_there_in_the_format_the_unquantised_one_serves(exact: World, keys: KeyMaker) -> None:
    mixed = plan_of(exact, keys, NOTHING, (4, 2, 1))

    assert mixed.num_missing == 0
    assert mixed.placed[2].key == exact.model.keys.chunk(exact.model.chunks[2].token_ids)
    assert mixed.cache_variant not in {plan_of(exact, k, NOTHING, (4, 2, 1)).cache_variant for k in (exact.model.keys,)}


def test_a_part_of_a_chunk_is_placed_behind_what_vllm_has_in_its_own_cache(exact: World, keys: KeyMaker) -> None:
    """The same prompt twice under one salt: the second time only the end of the region is filled."""
    indices = (4, 9, 1)
    prompt = exact.model.prompt([exact.model.chunks[index] for index in indices])
    plan = plan_of(exact, keys, NOTHING)
    salt = f"part {keys.kv_format}"

    first = exact.ask(prompt, plan, logprobs=-1, salt=salt)
    again = exact.ask(prompt, plan, logprobs=-1, salt=salt)

    assert again.report.cached > 0
    assert kl(first.logprobs[0], again.logprobs[0]) <= 1e-4
