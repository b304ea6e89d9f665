"""Every family and form of weights that is served, tiny and random, through the oracle (docs/MODELS.md)."""

from pathlib import Path

import pytest
import torch

from ragkv.answer.prompt import Prompt
from ragkv.engine.loop import run_in_background
from ragkv.span import total_tokens
from ragkv.stitch.plan import StitchPlan
from tests.engine.tiny import MODELS, OFTEN
from tests.engine.world import World, kl, request, stitched_elsewhere, whole_context
from tests.support.made_kv import stored_kv

KL_BOUND = 0.005
KEY_BOUNDS = {"float32": 2e-3, "bfloat16": 0.1}
"""Of the largest value. In bfloat16 a model computes other roundings at another position; turned wrongly, it is 1."""
ELSEWHERE = 1500
"""A position where nothing was prefilled."""


pytestmark = pytest.mark.parametrize(
    "tiny",
    [
        *OFTEN,
        *("W8A8", "AWQ"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ["GPTQ", *MODELS] if name not in OFTEN),
    ],
    indirect=True,
)


def test_recomputing_everything_is_full_prefill(tiny: World) -> None:
    divergences = []
    for start in range(4):
        chunks = tiny.model.chunks[start : start + 3]
        prompt = tiny.model.prompt(chunks)
        divergences.append(divergence(tiny, prompt, tiny.model.plan(chunks, [whole_context(prompt)])))
    print(f"\nratio 1.0: KL {max(divergences):.1e}")
    assert max(divergences) <= KL_BOUND


def test_the_oracle_can_fail(tiny: World) -> None:
    """What the model says depends on its context."""
    one, other = (tiny.ask(tiny.model.prompt([c]), logprobs=-1, max_tokens=1) for c in tiny.model.chunks[:2])
    assert kl(one.logprobs[0], other.logprobs[0]) > KL_BOUND


def test_a_single_chunk_stitched_behind_its_prefix_is_full_prefill(tiny: World) -> None:
    """Ingestion and engine agree on every layer: nothing is recomputed here."""
    divergences = [divergence(tiny, tiny.model.prompt([c]), tiny.model.plan([c])) for c in tiny.model.chunks[:4]]
    print(f"\nsingle chunk: KL {max(divergences):.1e}")
    assert max(divergences) <= KL_BOUND


def divergence(world: World, prompt: Prompt, plan: StitchPlan) -> float:
    """KL of the stitched prompt's next token to full prefill's, in nats; greedy answers have to be equal."""
    full, stitched = (world.ask(prompt, p, logprobs=-1, max_tokens=1) for p in (None, plan))
    answers = world.ask_all([request(prompt, p, max_tokens=8) for p in (None, plan)])
    assert stitched.report.recomputed == total_tokens(plan.recompute)
    assert stitched.report.stitched + stitched.report.recomputed == prompt.question.start
    assert answers[0].token_ids == answers[1].token_ids
    return kl(full.logprobs[0], stitched.logprobs[0])


def test_a_chunk_far_from_where_it_was_prefilled_is_turned_to_its_position(tiny: World) -> None:
    """By the connector's own write, into every layer."""
    difference = max(stitched_elsewhere(tiny, chunk) for chunk in tiny.model.chunks[:3])
    print(f"\nstitched elsewhere: {difference:.1e} of the largest value")
    assert difference <= KEY_BOUNDS[tiny.model.settings.dtype]


def test_stored_kv_turned_to_another_position_is_the_engines_own_there(tiny: World, tmp_path: Path) -> None:
    """Prefix and chunk as if they began far behind the start: keys see only how far they are apart, so KV of every
    layer is the stored one, turned."""
    model, rpc = tiny.model, tiny.engine._llm.collective_rpc
    own, rotated = tmp_path / "own.pt", tmp_path / "rotated.pt"
    prefix = model.keys.prefix_ids
    stored = stored_kv(model.store, model.keys.chunk(model.chunks[3].token_ids), model.layout)
    torch.save(stored.keys, rotated)
    run_in_background(rpc("save_own_kv", args=([*prefix, *model.chunks[3].token_ids], str(own), ELSEWHERE)))
    run_in_background(rpc("rotate_file", args=(str(rotated), ELSEWHERE + len(prefix))))

    keys, values = zip(*torch.load(own), strict=True)
    assert len(keys) == model.layout.layers
    worst = {}
    for what, ours, theirs in (("key", torch.load(rotated), keys), ("value", stored.values, values)):
        there = torch.stack([layer[len(prefix) :] for layer in theirs])
        if there.numel():  # latent layers have no values
            worst[what] = float((ours - there).abs().max() / there.abs().max())
    print("\nstored KV elsewhere:", ", ".join(f"{share:.1e} of the largest {what}" for what, share in worst.items()))
    assert max(worst.values()) <= KEY_BOUNDS[model.settings.dtype]
