"""Models defined by their shapes alone: a configuration and a tokenizer made here, with random weights."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Words
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    DeepseekV3Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from ragkv.kv.layout import Layout, layout_of

PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"
DTYPE: Final = "bfloat16"
_GAIN = 1.2
"""Gain of a random layer: with more, rounding to bfloat16 moves the distribution of the next token by itself; with
less, nothing does."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model without weights."""

    name: str
    config: PretrainedConfig

    @property
    def layout(self) -> Layout:
        return layout_of(self.config, DTYPE)

    @property
    def weight_bytes(self) -> int:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(self.config, dtype=torch.bfloat16)
        return sum(weight.numel() * weight.itemsize for weight in model.parameters())

    def is_saved(self, folder: Path) -> bool:
        """Whether the folder is whole: the tokenizer is written last."""
        return (folder / "tokenizer.json").exists()

    def save(self, folder: Path) -> Path:
        """Write the configuration and a tokenizer whose tokens are printable characters and words without a meaning."""
        self.config.save_pretrained(folder)
        names = [*PRINTABLE, *(f"t{number}" for number in range(self.config.vocab_size - len(PRINTABLE)))]
        words = Words(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token=names[0]))
        words.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token=names[0]).save_pretrained(folder)
        return folder

    def save_with_weights(self, folder: Path) -> Path:
        """Like `save`, with weights under which the next token depends on the whole context."""
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(self.config, dtype=torch.float32)
        for name, weight in model.named_parameters():
            if "norm" in name:  # norms of ones would hide a norm that is left out
                weight.data.uniform_(0.5, 1.5)
        model.to(torch.bfloat16).save_pretrained(folder)
        return self.save(folder)

    def drawn(self, device: str) -> PreTrainedModel:
        """The model without its head, with random weights that were never anywhere but on the device."""
        with torch.device(device):
            model = AutoModel.from_config(self.config, dtype=torch.bfloat16, attn_implementation="sdpa")
        return model.eval()


def _shape(kind: type[PretrainedConfig], name: str, **sizes: Any) -> Shape:
    architecture = kind.__name__.replace("Config", "ForCausalLM")
    return Shape(name, kind(architectures=[architecture], dtype=DTYPE, eos_token_id=1, **sizes))


llama, qwen3 = partial(_shape, LlamaConfig), partial(_shape, Qwen3Config)
mistral = partial(_shape, MistralConfig, sliding_window=256)
"""All layers have a sliding window."""


def deepseek(name: str, hidden: int, layers: int, vocabulary: int) -> Shape:
    """Latent attention as in DeepSeek V2 Lite, without experts: a few of them would make roundings into other
    models."""
    return _shape(
        DeepseekV3Config, name, vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden,
        num_hidden_layers=layers, first_k_dense_replace=layers, num_attention_heads=16,
        num_key_value_heads=16, q_lora_rank=None, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128,
        v_head_dim=128, n_group=1, topk_group=1, max_position_embeddings=40960, initializer_range=_GAIN / math.sqrt(hidden),
        rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 10.0, "original_max_position_embeddings": 4096,
            "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1,
        },
    )  # fmt: skip


LLAMA_8B = llama(
    "Llama-3.1-8B", vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=131072, rms_norm_eps=1e-5,
    rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
)  # fmt: skip
QWEN3_8B = qwen3(
    "Qwen3-8B", vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
)  # fmt: skip


def small_sizes(hidden: int, head_dim: int, layers: int, vocabulary: int) -> dict[str, Any]:
    """Sizes of a model small enough to be saved with its weights."""
    return {
        "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head_dim, "max_position_embeddings": 40960,
        "tie_word_embeddings": True, "initializer_range": _GAIN / math.sqrt(hidden),
    }  # fmt: skip
