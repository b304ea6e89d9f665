"""The model families whose KV can be stitched, and why others' cannot.

A family is one value of `model_type` in a config.json. It is served once a tiny random model of it was held to full
prefill (tests/engine/test_families.py, docs/MODELS.md); what was not held to it is refused. What makes a model wrong
can also be a setting: each is refused with its reason. The engine's rotations are compared with Transformers' as well.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FAMILIES = frozenset({
    "apertus", "cohere", "ernie4_5", "gemma", "glm4", "glm4_moe", "granite", "granitemoe", "granitemoeshared", "llama",
    "mistral", "mixtral", "nemotron", "olmoe", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "stablelm",
})  # fmt: skip
"""Held to full prefill."""
_BY_TRANSFORMERS = frozenset({
    "arcee", "flex_olmo", "glm", "gpt_neox", "hunyuan_v1_dense", "hunyuan_v1_moe", "olmo", "olmo2", "olmo3", "phi", "phimoe", "seed_oss",
    "smollm3", "starcoder2",
})  # fmt: skip
"""Families for which vLLM has no code of its own."""
_UNTIED = frozenset({"glm4_moe", "olmoe"})
"""Families whose embeddings vLLM never ties."""
_ROPES = frozenset({"default", "linear", "llama3", "yarn"})
_ROPES_BY_LENGTH = frozenset({"dynamic", "longrope"})  # their angles depend on the length of the prompt
_MULTIMODAL_ROPE = "mrope_section"
_MAMBA = ("ssm_cfg", "state_size", "mamba_d_state", "mamba_d_ssm", "conv_L_cache")
_DIFFERENT = (
    "dual_chunk_attention_config", "llama_4_scaling", "attention_sinks", "layer_rope_theta", "clip_qkv", "logn_attn",
)  # fmt: skip
"""Fields of the configuration that Transformers and vLLM do not both follow, or that change keys by their position."""


def refusal_of(config: PretrainedConfig) -> str | None:
    """Why KV of this model's chunks cannot be stitched; None if it can."""
    for is_refused, reason in _REASONS:
        if is_refused(config):
            return reason
    return None


def _rope(config: PretrainedConfig) -> dict[str, Any]:
    return getattr(config, "rope_parameters", None) or {}


def _layer_kinds(config: PretrainedConfig) -> set[str]:
    return set(getattr(config, "layer_types", None) or ())


def _has_window(config: PretrainedConfig) -> bool:
    kinds = _layer_kinds(config)
    if any("sliding" in kind or "chunked" in kind for kind in kinds):
        return True
    return bool(not kinds and getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))


def _is_hybrid(config: PretrainedConfig) -> bool:
    recurrent = {kind for kind in _layer_kinds(config) if "attention" not in kind or kind == "linear_attention"}
    return bool(recurrent) or any(hasattr(config, name) for name in _MAMBA)


_REASONS: tuple[tuple[Callable[[PretrainedConfig], Any], str], ...] = (
    (lambda c: c.is_encoder_decoder, "it is an encoder-decoder model"),
    (lambda c: hasattr(c, "kv_lora_rank"), "it uses multi-head latent attention (MLA)"),
    (_is_hybrid, "it has layers other than attention (linear attention, a state space or convolutions)"),
    (_has_window, "it attends through a sliding window"),
    (lambda c: not hasattr(c, "num_attention_heads"), "it is not a text-only decoder with standard attention"),
    (lambda c: getattr(c, "alibi", False), "its positions are not rotations (ALiBi)"),
    (lambda c: not _rope(c), "it has no rotary position embedding (RoPE)"),
    (lambda c: not all(getattr(c, "no_rope_layers", None) or [1]), "some layers do not rotate their keys (NoPE)"),
    (lambda c: any(isinstance(v, dict) for v in _rope(c).values()), "its layers use different rotary embeddings"),
    (
        lambda c: _rope(c).get("rope_type") in _ROPES_BY_LENGTH,
        "its rotary embedding changes with the prompt's length (dynamic, longrope)",
    ),
    (lambda c: _MULTIMODAL_ROPE in _rope(c), "its rotary embedding is multimodal"),
    (
        lambda c: _rope(c).get("rope_type", "default") not in _ROPES,
        f"its rotary embedding is scaled in a way other than {', '.join(sorted(_ROPES - {'default'}))}",
    ),
    (lambda c: getattr(c, "attn_logit_softcapping", None), "it caps its attention logits"),
    (lambda c: not getattr(c, "is_causal", True), "its attention is not causal"),
    (
        lambda c: any(getattr(c, field, None) for field in _DIFFERENT),
        f"Transformers and vLLM compute its attention differently (one of {', '.join(_DIFFERENT)} is set)",
    ),
    (
        lambda c: c.model_type == "olmoe" and c.norm_topk_prob,
        "vLLM ignores its norm_topk_prob and weights its experts differently from Transformers",
    ),
    (
        lambda c: c.model_type in _UNTIED and c.tie_word_embeddings,
        "vLLM does not tie its embeddings, although its configuration asks for it",
    ),
    (
        lambda c: c.model_type in _BY_TRANSFORMERS,
        "vLLM runs it through Transformers' code, whose keys the engine cannot rotate",
    ),
    (lambda c: c.model_type not in FAMILIES, "its family has not been tested against full prefill"),
)


_COMPARED_POSITIONS = 4096
"""At far greater ones float32 is too coarse."""
_ANGLE_TOLERANCE = 0.006  # bfloat16 rounds what is above 1 by 0.004


def are_angles_of(config: PretrainedConfig, table: torch.Tensor) -> bool:
    """Whether a table of cosines and then sines, [positions, rotated dimensions], holds what Transformers turns this
    model's queries and keys by."""
    frequencies, scale = _frequencies(config)
    seen = table[:_COMPARED_POSITIONS].float().cpu()
    angles = torch.arange(len(seen), dtype=torch.float32)[:, None] * frequencies.cpu()
    expected = torch.cat((angles.cos(), angles.sin()), dim=-1) * scale
    return seen.shape == expected.shape and torch.allclose(seen, expected, rtol=0, atol=_ANGLE_TOLERANCE)


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
