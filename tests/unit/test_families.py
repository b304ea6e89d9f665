"""Which models can be stitched, and why others cannot (docs/MODELS.md)."""

from pathlib import Path

import pytest
import transformers
from transformers import LlamaConfig

from ragkv.errors import Unsupported
from ragkv.kv.families import FAMILIES, SEEING
from ragkv.kv.layout import layout_of
from tests.engine.tiny import MODELS, PLAIN, config_of

TABLE = (Path(__file__).parents[2] / "docs" / "MODELS.md").read_text()
_LONG = {"rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48, "rope_theta": 1e4}
_HYBRID, _WINDOW, _MLA = "layers other than attention", "sliding window", "latent attention"
_VIA, _UNHELD = "through Transformers", "not been tested"
REFUSED = [
    ("Ministral", {}, _WINDOW),
    ("Mixtral", {"sliding_window": 4096}, _WINDOW),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 2}, _WINDOW),
    ("Phi3", {"rope_parameters": _LONG, "original_max_position_embeddings": 4096}, "RAGKV_MAX_MODEL_LEN to 4096"),
    ("Llama", {"attn_logit_softcapping": 30.0}, "caps"),
    ("Gemma3Text", {"rope_parameters": {"full_attention": PLAIN, "other_attention": PLAIN}}, "kinds of layers"),
    (
        "Gemma3Text",
        {
            "rope_parameters": {
                "full_attention": PLAIN,
                "sliding_attention": PLAIN | {"rope_type": "dynamic", "factor": 2.0},
            }
        },
        "prompt's length",
    ),
    ("Gemma3Text", {"rope_parameters": {"full_attention": PLAIN | {"rope_type": "proportional"}}}, "a way other than"),
    ("Gemma2", {"layer_types": ["full_attention", "window_attention"] * 13}, "kinds of attention"),
    ("Gemma2", {"layer_types": ["full_attention", "chunked_attention"] * 13}, "kinds of attention"),
    ("Llama", {"layer_types": ["sliding_attention"] * 32, "sliding_window": 512}, _WINDOW),
    ("Cohere2", {"layer_types": ["linear_attention", "full_attention"] * 20}, _HYBRID),
    ("Ministral3", {}, "RAGKV_MAX_MODEL_LEN to 16384"),
    ("Phi", {}, _VIA),
    ("Phimoe", {}, _UNHELD),
    ("FlexOlmo", {}, _UNHELD),
    ("Olmo", {"clip_qkv": 8.0}, "differently"),
    ("Olmoe", {"clip_qkv": 8.0}, "differently"),
    ("Olmoe", {"norm_topk_prob": True}, "experts"),
    ("Olmoe", {"tie_word_embeddings": True}, "tie"),
    ("Gemma3nText", {}, _WINDOW),
    ("MiniCPM3", {}, _MLA),
    ("Youtu", {}, _MLA),
    ("LongcatFlash", {}, _MLA),
    ("DeepseekV32", {}, "small index"),
    ("GlmMoeDsa", {}, "small index"),
    ("KimiLinear", {}, _HYBRID),
    ("DeepseekV3", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "prompt's length"),
    ("Qwen3Next", {}, _HYBRID),
    ("Qwen3_5Text", {}, _HYBRID),
    ("Jamba", {}, _HYBRID),
    ("Bamba", {}, _HYBRID),
    ("FalconH1", {}, _HYBRID),
    ("GraniteMoeHybrid", {}, _HYBRID),
    ("NemotronH", {}, _HYBRID),
    ("Zamba2", {}, _HYBRID),
    ("Lfm2", {}, _HYBRID),
    ("Mamba", {}, _HYBRID),
    ("GPTNeoX", {}, _UNHELD),
    ("HunYuanDenseV1", {}, _VIA),
    ("Falcon", {"alibi": True}, "ALiBi"),
    ("Falcon", {}, _UNHELD),
    ("GPT2", {}, "no rotary"),
    ("T5", {}, "encoder-decoder"),
    ("Qwen2VL", {}, "text-only"),
    ("Qwen2_5_VLText", {}, _UNHELD),
    ("Llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "prompt's length"),
    ("Llama", {"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4}}, "a way other than"),
    ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12]}}, "multimodal"),
    ("Qwen2", {"dual_chunk_attention_config": {"chunk_size": 8192}}, "differently"),
    (
        "Mistral",
        {"sliding_window": None, "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 16384}},
        "MODEL_LEN to 16384",
    ),
    ("Llama", {"is_causal": False}, "not causal"),
    ("Llama", {"max_position_embeddings": 2048}, "no longer contexts than 2,048 tokens"),
    (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
        "MODEL_LEN to 8192 or less",
    ),
]


def test_other_models_are_refused_with_the_reason(subtests):
    for kind, fields, reason in REFUSED:
        with subtests.test(kind, fields=fields):
            config = getattr(transformers, f"{kind}Config")(**fields)
            with pytest.raises(Unsupported, match=reason):
                layout_of(config, max_model_len=32768)


def test_a_window_that_its_rotation_stretches_is_served():
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 2048}
    config = LlamaConfig(max_position_embeddings=2048, rope_parameters=rope)
    assert layout_of(config, max_model_len=8192).layers == config.num_hidden_layers


def test_a_family_that_nobody_has_heard_of_is_refused():
    class New(LlamaConfig):
        model_type = "new"

    with pytest.raises(Unsupported, match=_UNHELD):
        layout_of(New())


def test_every_family_that_is_served_is_held_to_the_oracle_and_documented():
    held = {config_of(name).model_type for name in MODELS}
    assert held == FAMILIES | SEEING
    assert [name for name in sorted(held) if f"`{name}`" not in TABLE] == []


def test_every_refused_family_is_documented():
    kinds = {getattr(transformers, f"{kind}Config").model_type for kind, _, _ in REFUSED}
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in TABLE] == []
