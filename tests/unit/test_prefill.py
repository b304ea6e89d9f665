"""Prefill takes out exactly what the model computes, for architectures that agree on little."""

import copy

import pytest
import torch
from transformers import (
    AutoModel,
    CohereConfig,
    GemmaConfig,
    Glm4Config,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
    StableLmConfig,
)

from ragkv.kv.format import QCACHE_BLOCK
from ragkv.kv.layout import layout_of
from ragkv.prefill.capture import modules_with_rotation
from ragkv.prefill.prefill import QCACHE_VIEW, Prefiller

TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
CONFIGS = [
    LlamaConfig(**TINY),
    Qwen2Config(**TINY),
    Qwen3Config(**TINY, head_dim=16),
    GemmaConfig(**TINY, head_dim=16),
    StableLmConfig(**TINY),
    CohereConfig(**TINY),
    Glm4Config(**TINY, head_dim=16, pad_token_id=0),
]
PREFIX = list(range(5, 12))
CHUNKS = [list(range(20, 60)), list(range(60, 65)), list(range(30, 53))]


@pytest.fixture(params=CONFIGS, ids=lambda config: config.model_type)
def prefiller(request):
    torch.manual_seed(0)
    model = AutoModel.from_config(request.param).to(torch.float32).eval()
    return Prefiller(model, layout_of(request.param, "float32"))


def test_keys_turned_back_to_their_positions_are_those_the_model_attends_to(prefiller):
    """The model's own cache holds rotated keys; ours, rotated by its own function, are the same."""
    ids = torch.tensor([PREFIX + CHUNKS[0]])
    cache = prefiller._model(ids, use_cache=True).past_key_values
    [_, kv] = prefiller.prefill(PREFIX, CHUNKS[:1])
    for index in range(prefiller.layout.layers):
        own_keys, own_values = cache.layers[index].keys[0], cache.layers[index].values[0]
        torch.testing.assert_close(kv.values[index].transpose(0, 1), own_values[:, len(PREFIX) :])
        # Rotation keeps lengths, pair by pair: enough to see that nothing but the rotation differs.
        lengths = own_keys[:, len(PREFIX) :].norm(dim=-1)
        torch.testing.assert_close(kv.keys[index].transpose(0, 1).norm(dim=-1), lengths, atol=1e-4, rtol=1e-4)
    first_token = cache.layers[0].keys[0][:, 0]
    torch.testing.assert_close(prefiller.prefill(PREFIX, [])[0].keys[0, 0], first_token)  # position 0 is not turned


def test_a_batch_gives_what_each_chunk_gives_alone(prefiller):
    """Padding on the right is never seen."""
    together = prefiller.prefill(PREFIX, CHUNKS)[1:]
    for chunk, kv in zip(CHUNKS, together, strict=True):
        [_, alone] = prefiller.prefill(PREFIX, [chunk])
        assert kv.num_tokens == len(chunk)
        for name in ("keys", "values", "initial", "local", "mean_keys"):
            torch.testing.assert_close(getattr(kv, name), getattr(alone, name), atol=1e-4, rtol=1e-4)


def test_the_q_cache_has_the_layouts_shape(prefiller):
    layout = prefiller.layout
    [_, kv] = prefiller.prefill(PREFIX, CHUNKS[:1])
    assert kv.initial.shape == kv.local.shape == (len(layout.q_layers), layout.q_heads, layout.head_dim)
    assert kv.mean_keys.shape == (3, len(layout.q_layers), layout.kv_heads, layout.head_dim)
    chosen = kv.keys[layout.q_layers.start : layout.q_layers.stop, :QCACHE_BLOCK]
    torch.testing.assert_close(kv.mean_keys[0], chosen.mean(1))
    assert len(CHUNKS[0]) > QCACHE_VIEW


def test_the_model_is_left_as_it_was(prefiller):
    """What wraps the model's rotation is gone after every forward."""
    module = modules_with_rotation(prefiller._model)[0]
    before = module.apply_rotary_pos_emb
    prefiller.prefill(PREFIX, CHUNKS[:1])
    assert module.apply_rotary_pos_emb is before


def test_two_models_in_one_process_do_not_take_each_others_place():
    """Transformers' registry of attention functions is the process's."""
    torch.manual_seed(0)
    models = [AutoModel.from_config(copy.deepcopy(CONFIGS[0])).to(torch.float32).eval() for _ in range(2)]
    first, second = (Prefiller(model, layout_of(CONFIGS[0], "float32")) for model in models)
    before = second.prefill(PREFIX, CHUNKS[:1])
    assert first.prefill(PREFIX, CHUNKS[:1])[1].num_tokens == len(CHUNKS[0])
    torch.testing.assert_close(second.prefill(PREFIX, CHUNKS[:1])[1].values, before[1].values)
