"""The shape of one model's KV, and which models have one that can be stitched."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PretrainedConfig

from ragkv.choosing import middle_third
from ragkv.errors import Rejected, Unsupported

LAYOUT_VERSION = 2
"""Of KV files and of the keys that name them. 2: a file carries its key."""
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_ROPE_BY_LENGTH = ("dynamic", "longrope")  # their angles depend on the length of the prompt, so no KV can be moved
_MULTIMODAL_ROPE = "mrope_section"


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
        return middle_third(self.layers)


def read_config(folder: Path) -> PretrainedConfig:
    """The model's configuration. Raises Rejected for a folder that holds none Transformers knows."""
    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise Rejected(f"{folder} is not a model folder that Transformers can read: {error}") from None


def layout_of(config: PretrainedConfig, dtype: str = "auto") -> Layout:
    """The layout of a model's KV. Raises Unsupported, with the reason, for a model that cannot be stitched."""
    for is_unsupported, reason in _REASONS:
        if is_unsupported(config):
            raise Unsupported(f"{config.model_type}: {reason}; KV of its chunks cannot be moved. Choose another model.")
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


def _rope(config: PretrainedConfig) -> dict[str, Any]:
    return getattr(config, "rope_parameters", None) or {}


def _layer_kinds(config: PretrainedConfig) -> set[str]:
    return set(getattr(config, "layer_types", None) or ())


_REASONS: tuple[tuple[Callable[[PretrainedConfig], Any], str], ...] = (
    (lambda c: c.is_encoder_decoder, "it is an encoder-decoder model"),
    (lambda c: hasattr(c, "kv_lora_rank"), "it uses multi-head latent attention (MLA)"),
    (lambda c: bool(_layer_kinds(c) & {"linear_attention", "mamba", "recurrent", "conv"}), "it has linear attention"),
    (lambda c: hasattr(c, "ssm_cfg") or hasattr(c, "state_size"), "it is a state-space model"),
    (
        lambda c: (
            any("sliding" in kind or "chunked" in kind for kind in _layer_kinds(c))
            or (not _layer_kinds(c) and getattr(c, "sliding_window", None) and getattr(c, "use_sliding_window", True))
        ),
        "it attends through a sliding window",
    ),
    (lambda c: not hasattr(c, "num_attention_heads"), "it is not a decoder with standard attention"),
    (lambda c: not _rope(c), "it has no rotary position embedding (RoPE)"),
    (lambda c: not all(getattr(c, "no_rope_layers", None) or [1]), "some layers do not rotate their keys"),
    (lambda c: any(isinstance(v, dict) for v in _rope(c).values()), "its layers use different rotary embeddings"),
    (lambda c: _rope(c).get("rope_type") in _ROPE_BY_LENGTH, "its rotary embedding changes with the prompt's length"),
    (lambda c: _MULTIMODAL_ROPE in _rope(c), "its rotary embedding is multimodal"),
)
