"""Latent attention (MLA): its arithmetic, the oracle and the policies over it, and what cannot be served of it.

Families: tests/engine/test_families.py.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ragkv.connector.latent import Unrotated, seen_by_heads
from ragkv.engine.launch import engine_arguments
from ragkv.errors import Unsupported
from ragkv.kv.layout import layout_of
from ragkv.settings import Settings
from ragkv.stitch.select import attention_logits
from tests.engine.conftest import started
from tests.engine.test_families import KL_BOUND, divergence
from tests.engine.test_policies import (
    chunks,
    test_captured_queries_are_those_of_prefill,
    test_deviation_is_cacheblends,
    test_question_is_what_the_question_attends_to,
)
from tests.engine.tiny import PLAIN, config_of, save_tiny
from tests.engine.world import World, whole_context

__all__ = [
    "chunks",
    "test_captured_queries_are_those_of_prefill",
    "test_deviation_is_cacheblends",
    "test_question_is_what_the_question_attends_to",
]

HEADS, PLAIN_DIMS, ROTATED, LATENT, TOKENS = 3, 8, 4, 16, 7
SCALE = 0.37


@pytest.fixture(scope="module")
def exact(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A DeepSeek V3 with as many layers as the policies' tests name."""
    home = tmp_path_factory.mktemp("latent")
    config = config_of("DeepSeek V3")
    config.num_hidden_layers, config.initializer_range = 30, 0.15
    settings = Settings(
        data_dir=home / "data", model=str(save_tiny(config, language_model, home / "model")), dtype="float32",
        chunk_tokens=96, max_model_len=2048, kv_cache_gib=0.3,
    )  # fmt: skip
    world = started(settings, 16, worker_extension_cls="tests.engine.peek.Peek")
    yield world
    world.stop()


def test_recomputing_everything_and_one_chunk_stitched_are_full_prefill(exact: World) -> None:
    model = exact.model
    for start in range(3):
        three = model.chunks[start : start + 3]
        prompt = model.prompt(three)
        assert divergence(exact, prompt, model.plan(three, [whole_context(prompt)])) <= KL_BOUND
        assert divergence(exact, model.prompt(three[:1]), model.plan(three[:1])) <= KL_BOUND


def test_queries_score_latents_as_they_score_the_keys_that_are_made_of_them() -> None:
    torch.manual_seed(0)
    key_weights = torch.randn(HEADS, PLAIN_DIMS, LATENT)
    layer = SimpleNamespace(
        W_UK_T=key_weights,
        scale=SCALE,
        head_size=LATENT + ROTATED,
        qk_nope_head_dim=PLAIN_DIMS,
        qk_rope_head_dim=ROTATED,
    )
    queries, latents = torch.randn(TOKENS, HEADS, PLAIN_DIMS + ROTATED), torch.randn(TOKENS, LATENT)
    turned = torch.randn(TOKENS, 1, ROTATED)

    absorbed, keys, values = seen_by_heads(layer, queries, latents, turned)

    made = torch.cat([torch.einsum("hpl,tl->thp", key_weights, latents), turned.expand(-1, HEADS, -1)], -1)
    expected = torch.einsum("qhd,thd->qht", queries, made) * SCALE
    torch.testing.assert_close(attention_logits(absorbed[:], keys)[:, 0], expected)
    torch.testing.assert_close(absorbed[-2:], absorbed[:][-2:])
    assert values.shape == (TOKENS, 1, 0)

    before = Unrotated(torch.randn(TOKENS, HEADS, ROTATED), torch.randn(TOKENS, 1, ROTATED))
    unrotated, own = before.within(absorbed, keys)
    assert torch.equal(own[..., :ROTATED], before.keys)
    assert torch.equal(own[..., ROTATED:], keys[..., ROTATED:])
    assert torch.equal(unrotated.rotated, before.queries)


def test_a_rotation_that_vllm_gets_wrong_on_cpus_is_refused(language_model: Path, tmp_path: Path) -> None:
    """Its kernel takes the heads of a part of the queries for neighbours, and turns what lies between them."""
    config = config_of("DeepSeek V2 Lite")
    config.rope_parameters = PLAIN
    folder = save_tiny(config, language_model, tmp_path / "model")
    with pytest.raises(Unsupported, match="on GPUs alone"):
        engine_arguments(Settings(data_dir=tmp_path), folder, layout_of(config, "float32"))
