"""Every family in bfloat16, from int8, in other blocks of the cache, and divided among two ranks."""

import pytest

from tests.engine.test_families import KL_BOUND, divergence
from tests.engine.tiny import MODELS, WAYS
from tests.engine.world import World, kl, whole_context

ALL = [f"{name} as {way}" for name in MODELS for way in ("bfloat16", "int8", "two ranks")]
OFTEN = "Mistral, window as bfloat16"
"""All layers have a window, and the cache has small blocks: by itself vLLM would keep none but the last."""

pytestmark = pytest.mark.parametrize(
    "tiny", [OFTEN, *(pytest.param(name, marks=pytest.mark.long) for name in ALL if name != OFTEN)], indirect=True
)


def test_recomputing_everything_is_full_prefill(tiny: World) -> None:
    chunks = tiny.model.chunks[:3]
    prompt = tiny.model.prompt(chunks)
    kl_of_all = divergence(tiny, prompt, tiny.model.plan(chunks, [whole_context(prompt)]))
    print(f"\nratio 1.0: KL {kl_of_all:.1e}")
    assert kl_of_all <= KL_BOUND


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
