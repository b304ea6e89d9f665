"""The shape of a model's KV."""

import pytest
import torch
from click.testing import CliRunner
from transformers import LlamaConfig, Mistral3Config, MistralConfig, PixtralVisionConfig, Qwen2Config, Qwen3Config

from ragkv.cli import main
from ragkv.errors import Rejected
from ragkv.kv.layout import layout_of, read_config


@pytest.mark.parametrize("config", [LlamaConfig(), Qwen2Config(), Qwen3Config(), MistralConfig(sliding_window=None)])
def test_rotary_decoders_with_standard_attention_are_served(config):
    layout = layout_of(config)
    assert layout.layers == config.num_hidden_layers
    assert layout.dtype is torch.bfloat16


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


def test_the_command_says_of_a_model_whether_it_can_be_served(tmp_path):
    said = []
    seeing = Mistral3Config(text_config=MistralConfig(sliding_window=None), vision_config=PixtralVisionConfig())
    for config in (Qwen3Config(), MistralConfig(sliding_window=None, is_causal=False), seeing):
        config.save_pretrained(folder := tmp_path / config.model_type)
        result = CliRunner().invoke(main, ["models", "check", str(folder)])
        said.append((result.exit_code, result.output))
    assert said[0][0] == 0
    assert "can be served (qwen3)" in said[0][1]
    assert said[2][0] == 0
    assert "can be served (mistral)" in said[2][1]
    assert said[1][0] == 1
    assert "its attention is not causal" in said[1][1]
