"""Tiny models with random weights, one or more for each family that is served (ragkv/kv/families.py)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer, PretrainedConfig

from ragkv.kv.families import SEEING
from ragkv.kv.format import KVFormat

TINY: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096, "vocab_size": 49152,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "tie_word_embeddings": True, "initializer_range": 0.3,
}  # fmt: skip
WIDE = TINY | {"hidden_size": 128}
"""For families whose head dimension follows from the hidden size."""
_WIDER = TINY | {"hidden_size": 512}
"""In bfloat16 vLLM's kernel on CPUs rotates 32 dimensions at a time, and ends the process with fewer."""
UNTIED = {"tie_word_embeddings": False}
_BASE = {"rope_theta": 10000.0}
_FROM = {"original_max_position_embeddings": 1024}
PLAIN = {"rope_type": "default"} | _BASE
LINEAR = {"rope_type": "linear", "factor": 4.0} | _BASE
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | _BASE | _FROM
YARN = {"rope_type": "yarn", "factor": 4.0} | _BASE | _FROM
SCALED_YARN = YARN | {"attention_factor": 0.8, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}
DEEPSEEK_YARN = YARN | {"mscale": 0.7, "mscale_all_dim": 1.0}


def _partial(share: float) -> dict[str, Any]:
    return PLAIN | {"partial_rotary_factor": share}


_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
_SHARED = {"num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 64}
_ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 64}
_FIRST_DENSE = ["dense", "sparse", "sparse", "sparse"]
_LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_GRANITE = {
    "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0625, "logits_scaling": 4.0,
}  # fmt: skip

_WINDOW = 64
_LOCAL = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_LONGROPE = {
    "original_max_position_embeddings": 2048,
    "rope_parameters": PLAIN | {"rope_type": "longrope", "short_factor": [1.1] * 16, "long_factor": [4.0] * 16},
}
_FULL_YARN = {"full_attention": YARN, "sliding_attention": PLAIN}
_OSS_YARN = YARN | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
_GEMMA3 = TINY | {"sliding_window": _WINDOW, "query_pre_attn_scalar": 32, "layer_types": _LOCAL}
_MINISTRAL = YARN | {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 2048}

_LATENT = TINY | _ROUTED | {
    "num_key_value_heads": 4, "head_dim": None, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 32, "qk_rope_head_dim": 64,
    "v_head_dim": 32, "first_k_dense_replace": 1,
} | UNTIED  # fmt: skip
"""vLLM's kernels on CPUs have these two sizes of what is kept alone, 512 and 64."""

_EYE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 16,
}  # fmt: skip


def _seeing(kind: str, text: dict[str, Any], eye: str, **fields: Any) -> dict[str, Any]:
    return {
        "text_config": {"model_type": kind} | text, "vision_config": {"model_type": eye} | _EYE, "tie_word_embeddings": True,
    } | fields  # fmt: skip


_LLAMA4 = TINY | _LOCAL_EXPERTS | {
    "num_experts_per_tok": 1, "intermediate_size_mlp": 128, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 2,
    "attention_chunk_size": 128, "rope_parameters": LLAMA3,
} | UNTIED  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 2": ("Llama", TINY),
    "Llama 3, llama3": ("Llama", TINY | {"rope_parameters": LLAMA3}),
    "Llama, linear": ("Llama", TINY | {"rope_parameters": LINEAR, "attention_bias": True, "mlp_bias": True}),
    "Llama, yarn": ("Llama", TINY | {"rope_parameters": DEEPSEEK_YARN}),
    "SmolLM2": ("Llama", WIDE | {"head_dim": None, "rope_parameters": PLAIN | {"rope_theta": 100000.0}}),
    "Mistral": ("Mistral", TINY | {"sliding_window": None}),
    "Mixtral": ("Mixtral", TINY | _LOCAL_EXPERTS | {"sliding_window": None}),
    "Qwen2": ("Qwen2", WIDE | {"head_dim": None, "sliding_window": 1024, "use_sliding_window": False}),
    "Qwen2, yarn": ("Qwen2", WIDE | {"head_dim": None, "rope_parameters": YARN}),
    "Qwen2 MoE": ("Qwen2Moe", WIDE | _EXPERTS | {"head_dim": None, "shared_expert_intermediate_size": 96}),
    "Qwen3": ("Qwen3", TINY),
    "Qwen3, yarn": ("Qwen3", TINY | {"rope_parameters": SCALED_YARN}),
    "Qwen3 MoE": ("Qwen3Moe", TINY | _EXPERTS),
    "Phi-3": ("Phi3", WIDE | {"head_dim": None, "sliding_window": None}),
    "Phi-4-mini, partial": ("Phi3", _WIDER | {"head_dim": None, "rope_parameters": _partial(0.75)}),
    "OLMoE": ("Olmoe", WIDE | _EXPERTS | {"head_dim": None, "norm_topk_prob": False} | UNTIED),
    "Granite": ("Granite", WIDE | _GRANITE | {"head_dim": None}),
    "Granite MoE": ("GraniteMoe", WIDE | _GRANITE | _LOCAL_EXPERTS | {"head_dim": None}),
    "Granite MoE, shared": (
        "GraniteMoeShared", WIDE | _GRANITE | _LOCAL_EXPERTS | {"head_dim": None, "shared_intermediate_size": 96},
    ),
    "Gemma": ("Gemma", TINY),
    "Cohere": ("Cohere", WIDE | {"head_dim": None, "use_qk_norm": True, "logit_scale": 1.0}),
    "GLM-4": ("Glm4", TINY | {"rope_parameters": _partial(0.5)}),
    "GLM-4 MoE": (
        "Glm4Moe",
        TINY | _ROUTED | {
            "rope_parameters": _partial(0.5), "first_k_dense_replace": 1, "use_qk_norm": True, "n_group": 1, "topk_group": 1,
        } | UNTIED,
    ),
    "StableLM": ("StableLm", _WIDER | {"head_dim": None, "rope_parameters": _partial(0.25)}),
    "Apertus": ("Apertus", TINY | {"rope_parameters": LLAMA3}),
    "Nemotron": ("Nemotron", TINY | {"rope_parameters": _partial(0.5)}),
    "Ernie 4.5": ("Ernie4_5", TINY),
    "Mistral, window": ("Mistral", TINY | {"sliding_window": _WINDOW}),
    "Ministral 3": ("Ministral3", TINY | {"rope_parameters": _MINISTRAL}),
    "Phi-3, window": ("Phi3", WIDE | {"head_dim": None, "sliding_window": _WINDOW}),
    "Phi-3, longrope": ("Phi3", WIDE | {"head_dim": None, "sliding_window": None} | _LONGROPE),
    "Gemma 2": ("Gemma2", TINY | {"sliding_window": _WINDOW, "query_pre_attn_scalar": 32}),
    "Gemma 3": ("Gemma3Text", _GEMMA3),
    "gpt-oss": (
        "GptOss",
        TINY | _LOCAL_EXPERTS | {"sliding_window": _WINDOW, "layer_types": _LOCAL, "rope_parameters": _OSS_YARN} | UNTIED,
    ),
    "Command R7B": ("Cohere2", TINY | {"sliding_window": _WINDOW, "layer_types": _LOCAL, "logit_scale": 1.0}),
    "Gemma 3, sees": ("Gemma3", _seeing("gemma3_text", _GEMMA3, "siglip_vision_model", mm_tokens_per_image=4)),
    "Mistral Small 3.2, sees": ("Mistral3", _seeing("mistral", TINY | {"sliding_window": None}, "pixtral")),
    "Ministral 3, sees": ("Mistral3", _seeing("ministral3", TINY | {"rope_parameters": _MINISTRAL}, "pixtral")),
    "MiniMax M2": (
        "MiniMaxM2", TINY | _LOCAL_EXPERTS | {"rope_parameters": _partial(0.5), "rotary_dim": 16, "use_routing_bias": True, "scoring_func": "softmax"} | UNTIED,
    ),
    "SmolLM3": ("SmolLM3", WIDE | {"head_dim": None, "no_rope_layer_interval": 2}),
    "OLMo": ("Olmo", WIDE | {"head_dim": None}),
    "OLMo 2": ("Olmo2", WIDE | {"head_dim": None}),
    "OLMo 3": (
        "Olmo3",
        WIDE | {"head_dim": None, "sliding_window": _WINDOW, "layer_types": _LOCAL, "rope_parameters": _FULL_YARN},
    ),
    "StarCoder 2": ("Starcoder2", WIDE | {"head_dim": None, "sliding_window": None}),
    "StarCoder 2, window": ("Starcoder2", WIDE | {"head_dim": None, "sliding_window": _WINDOW}),
    "Seed-OSS": ("SeedOss", TINY),
    "AFM": ("Arcee", TINY | {"rope_parameters": YARN}),
    "GLM-4 9B": ("Glm", TINY | {"rope_parameters": _partial(0.5)}),
    "Jais 2": ("Jais2", WIDE | {"num_key_value_heads": 4}),
    "dots.llm1": (
        "Dots1",
        WIDE | _ROUTED | {"head_dim": None, "first_k_dense_replace": 1, "norm_topk_prob": True, "sliding_window": None} | UNTIED,
    ),
    "CWM": ("Cwm", TINY | {"sliding_window": _WINDOW, "layer_types": _LOCAL}),
    "HyperCLOVA X": ("HyperCLOVAX", TINY | {"embedding_multiplier": 2.0, "attention_multiplier": 0.1}),
    "Command A+": (
        "Cohere2Moe",
        TINY | _SHARED | {"sliding_window": _WINDOW, "layer_types": _LOCAL, "logit_scale": 1.0, "mlp_layer_types": _FIRST_DENSE},
    ),
    "Ernie 4.5 MoE": (
        "Ernie4_5_Moe",
        WIDE | {
            "head_dim": None, "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1, "moe_intermediate_size": 64,
            "moe_layer_end_index": 3,
        },
    ),
    "Trinity": (
        "Afmoe",
        TINY | _SHARED | {
            "sliding_window": _WINDOW, "layer_types": _LOCAL, "num_dense_layers": 1, "score_func": "sigmoid", "route_norm": True,
            "n_group": 1, "topk_group": 1, "rope_scaling": None,
        } | UNTIED,
    ),
    "Hunyuan 3": (
        "HYV3",
        TINY | _SHARED | {
            "mlp_layer_types": _FIRST_DENSE, "first_k_dense_replace": 1, "expert_hidden_dim": 64, "qk_norm": True, "route_norm": True,
        } | UNTIED,
    ),
    "K-EXAONE": (
        "ExaoneMoe",
        WIDE | _SHARED | {
            "head_dim": None, "sliding_window": _WINDOW, "layer_types": _LOCAL, "mlp_layer_types": _FIRST_DENSE,
            "first_k_dense_replace": 1,
        } | UNTIED,
    ),
    "DeepSeek V2 Lite": ("DeepseekV2", _LATENT | {"topk_method": "greedy", "n_group": 1, "topk_group": 1, "rope_parameters": DEEPSEEK_YARN}),
    "DeepSeek V3": (
        "DeepseekV3", _LATENT | {"q_lora_rank": 48, "n_group": 2, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "rope_parameters": DEEPSEEK_YARN},
    ),
    "GLM-4.7 Flash": ("Glm4MoeLite", _LATENT | {"q_lora_rank": 48, "mlp_layer_types": _FIRST_DENSE, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "rope_parameters": DEEPSEEK_YARN}),
    "Llama 4": ("Llama4Text", _LLAMA4),
    "Llama 4, sees": ("Llama4", _seeing("llama4_text", _LLAMA4, "llama4_vision_model")),
    "EXAONE 4": ("Exaone4", WIDE | {"head_dim": None, "sliding_window": _WINDOW, "layer_types": _LOCAL}),
}  # fmt: skip
"""By name: the class of the family's configuration, without `Config`, and what it is made with."""
OFTEN = {"Llama 3, llama3": 0, "Qwen3, yarn": 4, "Qwen3 MoE": 0, "SmolLM3": 0}
"""Families among the ordinary tests, and how many tokens are guessed at once: everything holds with n-gram speculative
decoding too."""
IN_SMALL_STEPS = OFTEN | {"Gemma 3": 0, "gpt-oss": 0, "Mistral, window": 0, "OLMo 3": 0, "DeepSeek V3": 0}
"""Families whose engine has a small cache and small steps (tests/engine/test_architectures.py), and how many tokens are
guessed at once."""


@dataclass(frozen=True)
class Way:
    """Settings, and arguments of vLLM, that every family works with too. bound: of the KL of one stitched chunk."""

    settings: dict[str, Any]
    arguments: dict[str, Any]
    bound: float


WAYS = {
    "bfloat16": Way({"dtype": "bfloat16"}, {"block_size": 32}, 0.005),
    "int8": Way({"kv_format": KVFormat.INT8}, {"block_size": 64}, 0.1),
    "read from files": Way({"host_kv_bytes": 0}, {}, 0.005),
    "float16": Way({"dtype": "float16"}, {}, 0.005),
    "two ranks": Way({"tensor_parallel_size": 2, "kv_cache_gib": 0.04}, {}, 0.005),
}
QUANTISED = "Qwen3"
"""The family whose weights are quantised (tests/engine/quantised.py)."""


_MAY_BE_NONE = {"sliding_window", "q_lora_rank"}


def config_of(name: str) -> PretrainedConfig:
    kind, fields = MODELS[name]
    given = {field: value for field, value in fields.items() if value is not None or field in _MAY_BE_NONE}
    return getattr(transformers, f"{kind}Config")(**given)


def save_tiny(config: PretrainedConfig, embedded: Path, folder: Path) -> Path:
    """A model folder with the embedded model's tokenizer."""
    torch.manual_seed(0)
    kind = AutoModelForImageTextToText if config.model_type in SEEING else AutoModelForCausalLM
    model = kind.from_config(config).to(torch.float32)
    for name, weight in model.named_parameters():
        if "norm" in name:  # norms of ones would hide a norm that is left out
            weight.data.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded).save_pretrained(folder)
    return folder
