"""The angles by which Transformers rotates a model's keys, for comparison with another implementation's."""

import torch
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

_POSITIONS = 4096
"""Compared at most: at far greater ones float32 is too coarse."""
_TOLERANCE = 0.006  # bfloat16 rounds what is above 1 by 0.004


def are_angles_of(config: PretrainedConfig, table: torch.Tensor) -> bool:
    """Whether a table of cosines and then sines, [positions, rotated dimensions], holds what Transformers turns this
    model's queries and keys by."""
    frequencies, scale = _frequencies(config)
    seen = table[:_POSITIONS].float().cpu()
    angles = torch.arange(len(seen), dtype=torch.float32)[:, None] * frequencies.cpu()
    expected = torch.cat((angles.cos(), angles.sin()), dim=-1) * scale
    return seen.shape == expected.shape and torch.allclose(seen, expected, rtol=0, atol=_TOLERANCE)


def _frequencies(config: PretrainedConfig) -> tuple[torch.Tensor, float]:
    """Angle a position of every pair of rotated dimensions, [pairs] float32, and the factor on all cosines and
    sines."""
    rope = config.rope_parameters
    kind = rope.get("rope_type", "default")
    if kind != "default":
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config)
        return frequencies, scale
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    return rope["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float32) / size), 1.0
