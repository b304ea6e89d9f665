"""Which models can be stitched, and why others cannot (docs/MODELS.md)."""

from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoModel, LlamaConfig, PretrainedConfig

from ragkv.errors import Unsupported
from ragkv.kv.families import FAMILIES, are_angles_of
from ragkv.kv.layout import layout_of
from tests.engine.tiny import LLAMA3, MODELS, PLAIN, TINY, YARN, config_of

TABLE = (Path(__file__).parents[2] / "docs" / "MODELS.md").read_text()
_LONG = {"rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48, "rope_theta": 1e4}
_HYBRID, _WINDOW, _MLA = "layers other than attention", "sliding window", "latent attention"
_VIA, _UNHELD = "through Transformers", "not been tested"
REFUSED = [
    ("Mistral", {"sliding_window": 4096}, _WINDOW),
    ("Ministral", {}, _WINDOW),
    ("Ministral3", {}, _UNHELD),
    ("Mixtral", {"sliding_window": 4096}, _WINDOW),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 2}, _WINDOW),
    ("Phi3", {"sliding_window": 2047}, _WINDOW),
    ("Phi3", {"rope_parameters": _LONG, "original_max_position_embeddings": 4096}, "prompt's length"),
    ("Phi", {}, _VIA),
    ("Phimoe", {}, _VIA),
    ("Olmo", {}, _VIA),
    ("Olmo2", {}, _VIA),
    ("Olmo3", {}, _WINDOW),
    ("Olmoe", {"clip_qkv": 8.0}, "differently"),
    ("Olmoe", {"norm_topk_prob": True}, "experts"),
    ("Olmoe", {"tie_word_embeddings": True}, "tie"),
    ("SmolLM3", {}, "NoPE"),
    ("SmolLM3", {"no_rope_layers": [1] * 36}, _VIA),
    ("Gemma2", {}, _WINDOW),
    ("Gemma2", {"layer_types": ["full_attention"] * 26}, "caps"),
    ("Gemma3Text", {}, _WINDOW),
    ("Gemma3", {}, "text-only"),
    ("Gemma3nText", {}, _WINDOW),
    ("DeepseekV2", {}, _MLA),
    ("DeepseekV3", {}, _MLA),
    ("MiniCPM3", {}, _MLA),
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
    ("GptOss", {}, _WINDOW),
    ("Llama4Text", {}, _WINDOW),
    ("Cohere2", {}, _WINDOW),
    ("Exaone4", {}, _WINDOW),
    ("GPTNeoX", {}, _VIA),
    ("Glm", {}, _VIA),
    ("HunYuanDenseV1", {}, _VIA),
    ("Starcoder2", {}, _VIA),
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
    ("Mistral", {"sliding_window": None, "llama_4_scaling": {"beta": 0.1}}, "differently"),
    ("Llama", {"is_causal": False}, "not causal"),
]


def test_other_models_are_refused_with_the_reason(subtests):
    for kind, fields, reason in REFUSED:
        with subtests.test(kind, fields=fields):
            config = getattr(transformers, f"{kind}Config")(**fields)
            with pytest.raises(Unsupported, match=reason):
                layout_of(config)


def test_a_family_that_nobody_has_heard_of_is_refused():
    class New(LlamaConfig):
        model_type = "new"

    with pytest.raises(Unsupported, match=_UNHELD):
        layout_of(New())


def test_layers_with_rotary_embeddings_of_their_own_are_refused():
    config = LlamaConfig()
    config.rope_parameters = {"full_attention": {"rope_theta": 1e6}, "other_attention": {"rope_theta": 1e4}}
    with pytest.raises(Unsupported, match="different rotary"):
        layout_of(config)


def test_every_family_that_is_served_is_held_to_the_oracle_and_documented():
    assert {config_of(name).model_type for name in MODELS} == FAMILIES
    assert [name for name in sorted(FAMILIES) if f"`{name}`" not in TABLE] == []


def test_every_refused_family_is_documented():
    kinds = {getattr(transformers, f"{kind}Config").model_type for kind, _, _ in REFUSED}
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in TABLE] == []


def turned_by(config: PretrainedConfig) -> torch.Tensor:
    """Cosines and sines of Transformers' own rotary embedding, each frequency once."""
    rotary = AutoModel.from_config(config).rotary_emb
    angles = rotary(torch.zeros(1), torch.arange(3000)[None])
    return torch.cat([each[0, :, : each.shape[-1] // 2] for each in angles], dim=-1)


def test_the_angles_held_against_vllms_are_those_of_transformers(subtests):
    for name in MODELS.keys() - {"Cohere"}:
        with subtests.test(name):
            config = config_of(name)
            table = turned_by(config)
            assert are_angles_of(config, table)
            assert are_angles_of(config, table.to(torch.bfloat16))


def test_other_angles_are_seen(subtests):
    for rope, other in [
        (LLAMA3, LLAMA3 | {"factor": 8.0}),
        (LLAMA3, LLAMA3 | {"rope_theta": 10100.0}),
        (LLAMA3, PLAIN),
        (PLAIN, PLAIN | {"partial_rotary_factor": 0.5}),
        (YARN, YARN | {"factor": 4.2}),
        (YARN, YARN | {"attention_factor": 1.15}),
        (YARN, YARN | {"truncate": False}),
    ]:
        with subtests.test(rope=rope, other=other):
            config = LlamaConfig(**TINY, rope_parameters=rope)
            table = turned_by(config)
            config.rope_parameters = other
            assert not are_angles_of(config, table)
