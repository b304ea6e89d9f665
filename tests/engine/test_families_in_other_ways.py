"""Every family in bfloat16 and float16, from int8, in other blocks of the cache, and divided among two ranks."""

from statistics import mean

import pytest
import torch

from tests.engine.reference import reader_of
from tests.engine.test_families import KL_BOUND, divergence
from tests.engine.tiny import MODELS, WAYS
from tests.engine.world import World, kl, whole_context

IN_PARTS = [
    f"{name} as bfloat16"
    for name, (_, fields) in MODELS.items()
    if {"kv_lora_rank", "attention_chunk_size"} & (fields | fields.get("text_config", {})).keys()
]
"""Attention that vLLM computes in other parts behind what was prefilled before (latent, and within chunks of
positions): it rounds them otherwise."""
IN_WAYS = {f"{name} as {way}" for name in MODELS for way in ("bfloat16", "float16", "int8", "two ranks")}
ALL = IN_WAYS.difference(IN_PARTS)
OFTEN = ["Mistral, window as bfloat16", "Llama 2 as float16"]
"""All layers of the first have a window, and the cache has small blocks: by itself vLLM would keep none but the last.
The second is computed in float32 where the processor has no float16: KV is of another type than what it is part of."""

in_all_ways = pytest.mark.parametrize(
    "tiny",
    [*OFTEN, *(pytest.param(name, marks=pytest.mark.long) for name in sorted(ALL.difference(OFTEN)))],
    indirect=True,
)


@in_all_ways
def test_recomputing_everything_is_full_prefill(tiny: World) -> None:
    chunks = tiny.model.chunks[:3]
    prompt = tiny.model.prompt(chunks)
    kl_of_all = divergence(tiny, prompt, tiny.model.plan(chunks, [whole_context(prompt)]))
    print(f"\nratio 1.0: KL {kl_of_all:.1e}")
    assert kl_of_all <= KL_BOUND


@in_all_ways
def test_a_single_chunk_stitched_behind_its_prefix_is_full_prefill(tiny: World, request: pytest.FixtureRequest) -> None:
    """Nearly, from int8."""
    way = request.node.callspec.params["tiny"].partition(" as ")[2]
    prompt = tiny.model.prompt(tiny.model.chunks[:1])
    full, stitched = (
        tiny.ask(prompt, plan, logprobs=-1, max_tokens=1) for plan in (None, tiny.model.plan(tiny.model.chunks[:1]))
    )
    assert stitched.report.stitched == prompt.question.start
    kl_of_chunk = kl(full.logprobs[0], stitched.logprobs[0])
    print(f"\nsingle chunk: KL {kl_of_chunk:.1e}")
    assert kl_of_chunk <= WAYS[way].bound


@pytest.mark.long
@pytest.mark.parametrize("tiny", IN_PARTS, indirect=True)
def test_attention_in_parts_is_rounded_otherwise_by_less_than_full_prefill_is(tiny: World) -> None:
    """With everything recomputed, and of one chunk with nothing recomputed: the mean KL to full prefill is below half
    of full prefill's own to the same model in float32."""
    model, reader = tiny.model, reader_of(tiny.model)
    own, ours = [], []
    for start in range(8):
        chunks = model.chunks[start : start + 3]
        prompt, alone = model.prompt(chunks), model.prompt(chunks[:1])
        plans = (prompt, model.plan(chunks, [whole_context(prompt)])), (alone, model.plan(chunks[:1]))
        for asked, plan in plans:
            full, stitched = (tiny.ask(asked, p, logprobs=-1, max_tokens=1).logprobs[0] for p in (None, plan))
            with torch.inference_mode():
                exact = reader(torch.tensor([asked.token_ids])).logits[0, -1].log_softmax(-1)
            own.append(kl(dict(enumerate(exact.tolist())), full))
            ours.append(kl(full, stitched))
    print(f"\nroundings: KL {mean(ours):.1e}, full prefill's own {mean(own):.1e}")
    assert mean(ours) <= 0.5 * mean(own)
