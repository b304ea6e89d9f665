"""The shape of a model's KV, whole and on one rank, and the dtype that this machine computes it in."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ragkv.errors import Rejected, Unsupported
from ragkv.kv.families import SEEING, refusal_of
from ragkv.kv.format import qcache_layers

if TYPE_CHECKING:
    from transformers import PretrainedConfig

LAYOUT_VERSION = 2
"""Version of KV files and of the keys that name them. 2: a file carries its key."""
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape of one token's KV. `q_layers` are the layers whose queries the Q-Cache keeps.

    is_latent: the model's attention is latent (MLA). Then the only KV head has no values, since these are made of its
    key: the rotated part that all heads share, and behind it the latent (`ragkv.connector.latent`).
    """

    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    is_latent: bool = False

    @property
    def value_dim(self) -> int:
        """Size of a head's values."""
        return 0 if self.is_latent else self.head_dim

    @property
    def bytes_per_token(self) -> int:
        return self.layers * self.kv_heads * (self.head_dim + self.value_dim) * self.dtype.itemsize

    @property
    def q_layers(self) -> range:
        return qcache_layers(self.layers)


def read_config(folder: Path) -> "PretrainedConfig":
    """The configuration of the model, or of its language model if it sees images too. Raises Rejected for a folder that
    holds none Transformers knows."""
    config = read_whole_config(folder)
    return language_model_of(config) if config.model_type in SEEING else config


def read_whole_config(folder: Path) -> "PretrainedConfig":
    """The configuration in the folder. Raises Rejected for a folder that holds none Transformers knows."""
    from transformers import AutoConfig  # noqa: PLC0415 - a second, which commands without a model can do without

    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise Rejected(f"{folder} is not a model folder that Transformers can read: {error}") from None


def language_model_of(config: "PretrainedConfig") -> "PretrainedConfig":
    """The configuration of the language model of one that sees images too, with what stands beside it."""
    text = copy.deepcopy(config.text_config)
    text.tie_word_embeddings = config.tie_word_embeddings
    text.dtype = text.dtype or config.dtype
    return text


def layout_of(config: "PretrainedConfig", dtype: str = "auto", max_model_len: int = 0) -> Layout:
    """The layout of a model's KV. Raises Unsupported, with the reason, for a model that cannot be stitched in a context
    window of so many tokens."""
    if reason := refusal_of(config, max_model_len):
        raise Unsupported(f"{config.model_type} cannot be served: {reason}. docs/MODELS.md lists the models that can.")
    stored = getattr(config, "dtype", None) or torch.bfloat16
    if stored == torch.float32:
        stored = torch.bfloat16
    latent = getattr(config, "kv_lora_rank", None)
    if latent:
        kv_heads, head_dim = 1, config.qk_rope_head_dim + latent
    else:
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Layout(
        layers=config.num_hidden_layers,
        q_heads=config.num_attention_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=_DTYPES[dtype] if dtype != "auto" else stored,
        is_latent=bool(latent),
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


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a model's KV that rank `rank` of a tensor-parallel engine of `size` holds: some heads of every layer,
    divided as vLLM does. With more ranks than KV heads each head has as many ranks as any other, which
    hold copies of it. Raises Unsupported for heads that cannot be shared out among so many."""

    whole: Layout
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.whole.q_heads % self.size or (self.whole.kv_heads % self.size and self.size % self.whole.kv_heads):
            raise Unsupported(
                f"{self.whole.q_heads} query heads and {self.whole.kv_heads} KV heads cannot be divided among {self.size} ranks: "
                "set RAGKV_TENSOR_PARALLEL_SIZE to a number that divides the number of query heads and either divides "
                "the number of KV heads or is a multiple of it"
            )

    @property
    def kv_heads(self) -> slice:
        """Its KV heads, among the model's."""
        start = self.rank * self.whole.kv_heads // self.size
        return slice(start, start + max(self.whole.kv_heads // self.size, 1))

    @property
    def layout(self) -> Layout:
        """The shape of its part of a token's KV."""
        heads = self.kv_heads
        return replace(self.whole, q_heads=self.whole.q_heads // self.size, kv_heads=heads.stop - heads.start)
