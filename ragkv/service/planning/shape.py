"""The part of a model's configuration that determines the size of its KV and the cost of its prefill."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ragkv.errors import NotFound, Rejected
from ragkv.kv.format import QCACHE_BLOCK, KVFormat, qcache_layers

KNOWN = Path(__file__).parent / "models.json"
"""Configurations of public models, by name: the fields of their config.json that are read here."""
_HALF = 2  # bytes of a bfloat16


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder. Multi-head, grouped-query and multi-query attention differ in `kv_heads`. Multi-head latent attention
    has `latent` values a token and layer in place of keys and values, and `attention` parameters a layer.

    inner: values between the two halves of a layer's feed-forward part. Of a mixture of experts `active` ones take part
    for each token, with `expert_inner` values each, and shared ones with `shared_inner` in all; its first
    `dense_layers` have none.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int
    latent: int | None = None
    attention: int | None = None
    active: int = 1
    expert_inner: int | None = None
    shared_inner: int = 0
    dense_layers: int = 0

    @property
    def values_per_token(self) -> int:
        """Keys and values, or latents, of all layers."""
        if self.latent is not None:
            return self.layers * self.latent
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token's KV in bfloat16."""
        return _HALF * self.values_per_token

    def qcache_bytes(self, tokens: int, kv_format: KVFormat) -> int:
        """Bytes of a chunk's Q-Cache, which its KV file has beside keys and values: two vectors of every query head and
        a mean key for every block of tokens, of the layers that choose, in float32 or, quantised, in bfloat16. Of
        latent attention the vectors are as long as what is kept of a token, for which there is one head."""
        kv_heads, size = (1, self.latent) if self.latent is not None else (self.kv_heads, self.head_dim)
        vectors = 2 * self.heads + kv_heads * -(-tokens // QCACHE_BLOCK)
        values = len(qcache_layers(self.layers)) * size * vectors
        return values * (2 * _HALF if kv_format is KVFormat.BF16 else _HALF)

    @property
    def active_parameters(self) -> int:
        """Parameters that take part for one token: layers and head, without the embedding, which is looked up, norms
        and biases."""
        attention = self.attention or 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        sparse = 0 if self.expert_inner is None else self.layers - self.dense_layers
        expert = self.active * (self.expert_inner or 0) + self.shared_inner
        inner = 3 * self.hidden * ((self.layers - sparse) * self.inner + sparse * expert)
        return self.layers * attention + inner + self.hidden * self.vocabulary

    def flops_per_token(self, context: int) -> float:
        """Operations for each token of a prefill of `context` tokens, on average: two for each parameter, and attention
        to half of the context."""
        return 2.0 * self.active_parameters + 2.0 * self.layers * self.heads * self.head_dim * context


def shape_of(model: str) -> Shape:
    """The shape of a model: a folder with a config.json, such a file, or the name of a known model, in any case.

    Raises NotFound, naming those that are known, and Rejected for a configuration that lacks something.
    """
    path = Path(model)
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        try:
            return _shape(
                path.name if path.is_dir() else path.stem, msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
            )
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise Rejected(f"{file}: {error}") from None
    models = known_models()
    for name, config in models.items():
        if name.lower() == model.rpartition("/")[2].lower():
            return _shape(name, config)
    raise NotFound(f"no model {model}: give a folder with a config.json, such a file, or one of {', '.join(models)}")


@cache
def known_models() -> dict[str, dict[str, Any]]:
    """Configurations by name."""
    return msgspec.json.decode(KNOWN.read_bytes(), type=dict[str, dict[str, Any]])


def _shape(name: str, config: Mapping[str, Any]) -> Shape:
    config = config.get("text_config") or config

    def number(*keys: str) -> int:
        for key in keys:
            if config.get(key) is not None:
                value = int(config[key])
                if value < 1:
                    raise Rejected(f"{name}: {key} is {value}")
                return value
        raise Rejected(f"{name}: its configuration has no {keys[0]}")

    heads, hidden = number("num_attention_heads", "n_head"), number("hidden_size", "n_embd")
    latent = attention = None
    if config.get("kv_lora_rank"):
        rank, turned = number("kv_lora_rank"), number("qk_rope_head_dim")
        plain, value = number("qk_nope_head_dim"), number("v_head_dim")
        q_rank = config.get("q_lora_rank")
        latent = rank + turned
        queries = heads * (plain + turned)
        attention = (q_rank * (hidden + queries) if q_rank else hidden * queries) + hidden * latent
        attention += rank * heads * (plain + value) + heads * value * hidden
    is_mixture = bool(config.get("num_experts_per_tok"))
    expert_inner = number("moe_intermediate_size", "intermediate_size") if is_mixture else None
    # Of the experts that every token takes part in, all of them together: Qwen, Granite.
    shared = config.get("shared_expert_intermediate_size") or config.get("shared_intermediate_size")
    return Shape(
        name=name,
        layers=number("num_hidden_layers", "n_layer"),
        hidden=hidden,
        heads=heads,
        kv_heads=number("num_key_value_heads", "num_attention_heads", "n_head"),
        head_dim=int(config.get("head_dim") or hidden // heads),
        inner=number("intermediate_size", "n_inner"),
        vocabulary=number("vocab_size"),
        latent=latent,
        attention=attention,
        active=number("num_experts_per_tok") if is_mixture else 1,
        expert_inner=expert_inner,
        shared_inner=int(shared or int(config.get("n_shared_experts") or 0) * (expert_inner or 0)),
        dense_layers=int(config.get("first_k_dense_replace") or 0),
    )
