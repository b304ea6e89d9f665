"""The shape of a model's KV, and the dtype that this machine computes it in."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, PretrainedConfig

from ragkv.errors import Rejected, Unsupported
from ragkv.kv.families import refusal_of
from ragkv.kv.format import qcache_layers

LAYOUT_VERSION = 2
"""Version of KV files and of the keys that name them. 2: a file carries its key."""
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape of one token's KV. `q_layers` are the layers whose queries the Q-Cache keeps."""

    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def q_layers(self) -> range:
        return qcache_layers(self.layers)


def read_config(folder: Path) -> PretrainedConfig:
    """The model's configuration. Raises Rejected for a folder that holds none Transformers knows."""
    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise Rejected(f"{folder} is not a model folder that Transformers can read: {error}") from None


def layout_of(config: PretrainedConfig, dtype: str = "auto") -> Layout:
    """The layout of a model's KV. Raises Unsupported, with the reason, for a model that cannot be stitched."""
    if reason := refusal_of(config):
        raise Unsupported(f"{config.model_type} cannot be served: {reason}. docs/MODELS.md lists the models that can.")
    stored = getattr(config, "dtype", None) or torch.bfloat16
    if stored == torch.float32:
        stored = torch.bfloat16
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Layout(
        layers=config.num_hidden_layers,
        q_heads=config.num_attention_heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        head_dim=head_dim,
        dtype=_DTYPES[dtype] if dtype != "auto" else stored,
    )


_HAS_ARITHMETIC = {
    torch.bfloat16: ("avx512_f", "avx_ne_convert", "bf16", "arm_bf16"),
    torch.float16: ("avx512_fp16", "avx_ne_convert", "fp16", "arm_fp16_arith"),
}
"""Any of these capabilities of a processor gives its matrix products in the dtype separate kernels (oneDNN)."""


def computed_in(stored: torch.dtype) -> torch.dtype:
    """The dtype to compute in where KV is stored in `stored`: the same on a GPU and wherever the processor can.

    A processor without bfloat16 (AVX2 alone, say) computes with it by conversions: 1,000 tokens of the embedded model
    took 10 times as long as in float32 there. On such a one model and engine run in float32, and KV is rounded when it
    is stored.
    """
    if torch.accelerator.is_available() or stored not in _HAS_ARITHMETIC:
        return stored
    capabilities = torch.cpu.get_capabilities()
    return stored if any(capabilities.get(name) for name in _HAS_ARITHMETIC[stored]) else torch.float32
