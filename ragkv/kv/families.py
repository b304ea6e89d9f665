"""The model families whose KV can be stitched, and why others' cannot.

A family is one value of `model_type` in a config.json. It is served once a tiny random model of it was held to full
prefill (tests/engine/test_families.py, docs/MODELS.md); what was not held to it is refused. What makes a model wrong
can also be a setting: each is refused with its reason.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FAMILIES = frozenset({
    "afmoe", "apertus", "arcee", "cohere", "cohere2", "cohere2_moe", "cwm", "deepseek_v2", "deepseek_v3", "dots1",
    "ernie4_5", "ernie4_5_moe", "exaone4", "exaone_moe", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe",
    "glm4_moe_lite", "gpt_oss", "granite", "granitemoe", "granitemoeshared", "hy_v3", "hyperclovax", "jais2", "llama",
    "llama4_text", "minimax_m2", "ministral3", "mistral", "mixtral", "nemotron", "olmo", "olmo2", "olmo3", "olmoe",
    "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "stablelm", "starcoder2",
})  # fmt: skip
"""Held to full prefill."""
SEEING = frozenset({"gemma3", "llama4", "mistral3"})
"""Kinds of checkpoints that see images too: of them the language model is served, if its family is."""
_ROTATED_OTHERWISE = frozenset({"hunyuan_v1_dense", "hunyuan_v1_moe", "phi"})
"""Families that vLLM runs through Transformers' code, and whose layers rotate in a way of their own there."""
_WINDOWED = frozenset({
    "afmoe", "cohere2", "cohere2_moe", "cwm", "exaone4", "exaone_moe", "gemma2", "gemma3_text", "gpt_oss", "mistral",
    "olmo3", "phi3", "starcoder2",
})  # fmt: skip
"""Families that were held to it with layers of a sliding window too."""
_LATENT = frozenset({"deepseek_v2", "deepseek_v3", "glm4_moe_lite"})
"""Families that were held to it with multi-head latent attention (MLA)."""
_CAPPED = frozenset({"gemma2"})
_UNTIED = frozenset({"glm4_moe", "minimax_m2", "olmoe"})
"""Families whose embeddings vLLM never ties."""
_ROPES = frozenset({"deepseek_yarn", "default", "linear", "llama3", "longrope", "yarn"})
"""deepseek_yarn: vLLM's name for the `yarn` of models with latent attention."""
_LAYERS = frozenset({"full_attention", "sliding_attention"})
_CHUNKED = frozenset({"llama4_text"})
"""Families that were held to it with layers that attend within chunks of positions."""
_MULTIMODAL_ROPE = "mrope_section"
_MAMBA = ("ssm_cfg", "state_size", "mamba_d_state", "mamba_d_ssm", "conv_L_cache")
_DIFFERENT = (
    "dual_chunk_attention_config", "attention_sinks", "layer_rope_theta", "clip_qkv", "logn_attn",
)  # fmt: skip
"""Fields of the configuration that Transformers and vLLM do not both follow, or that change keys by their position."""


def refusal_of(config: "PretrainedConfig", max_model_len: int = 0) -> str | None:
    """Why KV of this model's chunks cannot be stitched in a context window of so many tokens; None if it can."""
    for is_refused, reason in _REASONS:
        if is_refused(config):
            return reason
    # Some compute otherwise from some position on: stored KV is that of the positions before it.
    ropes = [*_ropes(config), getattr(config, "llama_4_scaling", None) or {}]
    default = config.max_position_embeddings
    lengths = [
        rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", default)
        for rope in ropes
        if rope.get("rope_type") == "longrope" or rope.get("llama_4_scaling_beta") or "beta" in rope
    ]
    if lengths and max_model_len > min(lengths):
        return f"it computes otherwise in longer contexts: set RAGKV_MAX_MODEL_LEN to {min(lengths)} or less"
    longest = int(default * max([rope.get("factor") or 1 for rope in ropes], default=1))
    if max_model_len > longest:
        return f"it reads no longer contexts than {longest:,} tokens: set RAGKV_MAX_MODEL_LEN to {longest} or less"
    return None


def _ropes(config: "PretrainedConfig") -> list[dict[str, Any]]:
    """Its rotary embeddings: one, or one for each kind of layer."""
    rope = getattr(config, "rope_parameters", None) or {}
    by_kind = [part for part in rope.values() if isinstance(part, dict)]
    return by_kind or ([rope] if rope else [])


def _layer_kinds(config: "PretrainedConfig") -> set[str]:
    return set(getattr(config, "layer_types", None) or ())


def has_window(config: "PretrainedConfig") -> bool:
    """Whether layers of the model have a sliding window."""
    kinds = _layer_kinds(config)
    if any("sliding" in kind for kind in kinds):
        return True
    return bool(not kinds and getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))


_REASONS: "tuple[tuple[Callable[[PretrainedConfig], Any], str], ...]" = (
    (lambda c: c.is_encoder_decoder, "it is an encoder-decoder model"),
    (
        lambda c: (
            any("attention" not in kind or kind == "linear_attention" for kind in _layer_kinds(c))
            or any(hasattr(c, name) for name in _MAMBA)
        ),
        "it has layers other than attention (linear attention, a state space or convolutions)",
    ),
    (
        lambda c: hasattr(c, "index_topk"),
        "its layers attend to the tokens that a small index chooses, of which nothing is kept",
    ),
    (
        lambda c: hasattr(c, "kv_lora_rank") and c.model_type not in _LATENT,
        "it uses multi-head latent attention (MLA), with which its family has not been tested",
    ),
    (
        lambda c: has_window(c) and c.model_type not in _WINDOWED,
        "it attends through a sliding window, with which its family has not been tested",
    ),
    (
        lambda c: _layer_kinds(c) - _LAYERS - ({"chunked_attention"} if c.model_type in _CHUNKED else set()),
        "it has kinds of attention other than full and through a sliding window",
    ),
    (lambda c: not hasattr(c, "num_attention_heads"), "it is not a text-only decoder with standard attention"),
    (lambda c: getattr(c, "alibi", False), "its positions are not rotations (ALiBi)"),
    (lambda c: not _ropes(c), "it has no rotary position embedding (RoPE)"),
    (
        lambda c: any(isinstance(rope, dict) and kind not in _LAYERS for kind, rope in c.rope_parameters.items()),
        "it has rotary embeddings for kinds of layers that are not known here",
    ),
    (
        lambda c: any(rope.get("rope_type") == "dynamic" for rope in _ropes(c)),
        "its rotary embedding changes with the prompt's length (dynamic)",
    ),
    (lambda c: any(_MULTIMODAL_ROPE in rope for rope in _ropes(c)), "its rotary embedding is multimodal"),
    (
        lambda c: any(rope.get("rope_type", "default") not in _ROPES for rope in _ropes(c)),
        f"its rotary embedding is scaled in a way other than {', '.join(sorted(_ROPES - {'deepseek_yarn', 'default'}))}",
    ),
    (
        lambda c: getattr(c, "attn_logit_softcapping", None) and c.model_type not in _CAPPED,
        "it caps its attention logits, which vLLM does for Gemma 2 alone",
    ),
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
        lambda c: c.model_type in _ROTATED_OTHERWISE,
        "vLLM runs it through Transformers' code, which rotates its keys in a way of its own",
    ),
    (lambda c: c.model_type not in FAMILIES, "its family has not been tested against full prefill"),
)
