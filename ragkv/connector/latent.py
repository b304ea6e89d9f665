"""vLLM's worker: layers of latent attention (MLA), seen as attention over one KV head that all query heads share.

Such a layer keeps of each token a part of the key that is rotated, the same for all heads, and a latent, of which each
head makes the rest of its key and its value. A query multiplied by what makes keys of the latent scores the latent
itself (DeepSeek-V2, arXiv 2405.04434, section 2.1): so the key of the one head is both parts, the rotated one before
the latent, and it has no values. vLLM's cache has the latent first.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard

import torch
from vllm.model_executor.layers.attention import MLAAttention

from ragkv.errors import Unsupported


@dataclass(frozen=True, slots=True)
class LatentQueries:
    """Queries of a latent layer: indexed by tokens, they are multiplied for the one KV head, [tokens, q_heads,
    head_dim], and by what makes `head_dim ** -0.5` the scale of their scores.

    plain: [tokens, q_heads, dimensions that are not rotated]; rotated: [tokens, q_heads, dimensions that are].
    """

    layer: MLAAttention
    plain: torch.Tensor
    rotated: torch.Tensor

    def __getitem__(self, tokens: Any) -> torch.Tensor:
        by_head = self.plain[tokens].transpose(0, 1)
        latent = torch.bmm(by_head, self.layer.W_UK_T).transpose(0, 1)
        return torch.cat([self.rotated[tokens], latent], -1) * (self.layer.scale * self.layer.head_size**0.5)


Queries: TypeAlias = torch.Tensor | LatentQueries
"""Of a forward, indexed by tokens: [tokens, q_heads, head_dim]."""


@dataclass(frozen=True, slots=True)
class Unrotated:
    """Copies of a layer's parts before their rotation: queries [tokens, q_heads, rotated dimensions] and keys [tokens,
    1, rotated dimensions]."""

    queries: torch.Tensor
    keys: torch.Tensor

    def within(self, queries: LatentQueries, keys: torch.Tensor) -> tuple[LatentQueries, torch.Tensor]:
        """Queries and keys [tokens, 1, head_dim] as they enter attention, with these in place of the rotated parts."""
        return replace(queries, rotated=self.queries), torch.cat([self.keys, keys[..., self.keys.shape[-1] :]], -1)


def is_latent(layer: Any) -> TypeGuard[MLAAttention]:
    """Whether a layer's attention is latent."""
    return isinstance(layer, MLAAttention)


def refuse_packed(layer: MLAAttention) -> None:
    """Check that a latent layer has the weights that queries are multiplied by. Raises Unsupported."""
    if not hasattr(layer, "W_UK_T"):
        raise Unsupported(
            "vLLM packs the weights of latent attention for the kernels of this machine (AMX, or AITER on AMD GPUs): "
            "queries cannot be multiplied by them. Choose another of its attention backends"
        )


def seen_by_heads(
    layer: MLAAttention, queries: torch.Tensor, latents: torch.Tensor, turned: torch.Tensor
) -> tuple[LatentQueries, torch.Tensor, torch.Tensor]:
    """Queries, keys [tokens, 1, head_dim] and values [tokens, 1, 0] of what enters a layer: queries [tokens, q_heads,
    plain and rotated dimensions], latents [tokens, latent], rotated parts of keys [tokens, 1, rotated]."""
    plain, rotated = torch.split(queries, [layer.qk_nope_head_dim, layer.qk_rope_head_dim], -1)
    keys = torch.cat([turned, latents.unsqueeze(1)], -1)
    return LatentQueries(layer, plain, rotated), keys, keys[..., :0]


def write_latents(layer: MLAAttention, keys: torch.Tensor, slots: torch.Tensor) -> None:
    """Put rotated keys [tokens, 1, head_dim] into the layer's paged cache, by its backend's own kernel."""
    turned, latents = torch.split(keys, [layer.qk_rope_head_dim, layer.kv_lora_rank], -1)
    scale = layer._k_scale  # noqa: SLF001 - vLLM gives it no other name
    layer.impl.do_kv_cache_update(latents[:, 0], turned, layer.kv_cache, slots, layer.kv_cache_dtype, scale)
