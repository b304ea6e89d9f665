"""Which models can be stitched, and why others cannot."""

import pytest
import torch
from transformers import (
    DeepseekV3Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3NextConfig,
    SmolLM3Config,
    T5Config,
)  # fmt: skip

from ragkv.errors import Rejected, Unsupported
from ragkv.kv.layout import layout_of, read_config


@pytest.mark.parametrize("config", [LlamaConfig(), Qwen2Config(), Qwen3Config(), MistralConfig(sliding_window=None)])
def test_rotary_decoders_with_standard_attention_are_served(config):
    layout = layout_of(config)
    assert layout.layers == config.num_hidden_layers
    assert layout.dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (DeepseekV3Config(), "latent attention"),
        (Qwen3NextConfig(), "linear attention"),
        (MambaConfig(), "attention|state-space"),
        (MistralConfig(sliding_window=4096), "sliding window"),
        (Gemma3TextConfig(), "sliding window"),
        (GPT2Config(), "no rotary"),
        (T5Config(), "encoder-decoder"),
        (SmolLM3Config(), "some layers"),
        (LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}), "prompt's length"),
    ],
)
def test_other_models_are_refused_with_the_reason(config, reason):
    with pytest.raises(Unsupported, match=reason):
        layout_of(config)


def test_bytes_per_token_count_keys_and_values_of_all_layers():
    layout = layout_of(LlamaConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3))
    assert layout.bytes_per_token == 2 * 3 * 2 * 16 * 2


def test_the_q_cache_keeps_the_middle_third_of_the_layers():
    layout = layout_of(LlamaConfig(num_hidden_layers=30))
    assert layout.q_layers == range(10, 20)
    assert len(layout_of(LlamaConfig(num_hidden_layers=1)).q_layers) == 1


def test_a_folder_that_holds_no_model_is_rejected(tmp_path):
    with pytest.raises(Rejected, match="not a model folder"):
        read_config(tmp_path)
