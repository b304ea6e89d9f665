"""vLLM's worker: a layer's rotary embedding, applied to stored keys, and its inverse."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase
from vllm.model_executor.layers.rotary_embedding.phi3_long_rope_scaled_rope import Phi3LongRoPEScaledRotaryEmbedding

Embedding: TypeAlias = RotaryEmbeddingBase | Phi3LongRoPEScaledRotaryEmbedding
Rotary: TypeAlias = Embedding | None
"""None: the layer does not rotate."""


def rotary_embeddings(model: torch.nn.Module) -> list[Embedding]:
    """A model's rotary embeddings: one for all layers, or one for each kind."""
    return [module for module in model.modules() if isinstance(module, Embedding)]


@contextmanager
def watched(
    embeddings: Iterable[Embedding], on_rotation: Callable[[Embedding, torch.Tensor, torch.Tensor], None]
) -> Iterator[None]:
    """Call `on_rotation(embedding, queries, keys)` before each rotation of the block, with what is to be rotated."""

    def see(embedding: Any, inputs: tuple[Any, ...]) -> None:
        on_rotation(embedding, inputs[1], inputs[2])

    handles = [embedding.register_forward_pre_hook(see) for embedding in embeddings]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def rotate(rotary: Rotary, positions: torch.Tensor, keys: torch.Tensor) -> None:
    """Turn un-rotated keys [layers, tokens, kv_heads, head_dim], contiguous, in place, by the model's own kernel."""
    if rotary is None:
        return
    flat = keys.view(keys.shape[0] * keys.shape[1], -1)
    beside = None if isinstance(rotary, RotaryEmbeddingBase) else flat[:, : rotary.head_size]  # it asks for both
    rotated, _ = rotary(positions.repeat(len(keys)), flat, beside)
    if rotated.data_ptr() != flat.data_ptr():
        flat.copy_(rotated)


def unrotate(rotary: Rotary, positions: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """The inverse of `rotate` for [tokens, heads, head_dim], in float32: a rotation's transpose, with any scale the
    model's has divided out.

    RoFormer, arXiv 2104.09864, section 3.2.2: the rotation matrices are orthogonal.
    """
    if rotary is None:
        return queries.float()
    is_neox_style = getattr(rotary, "is_neox_style", True)
    table = rotary.cos_sin_cache if isinstance(rotary, RotaryEmbeddingBase) else rotary.long_short_cos_sin_cache
    cos, sin = table[positions].float().unsqueeze(1).chunk(2, dim=-1)
    scale = cos.square() + sin.square()
    size = rotary.rotary_dim
    turned, unturned = queries.float()[..., :size], queries.float()[..., size:]
    if is_neox_style:
        left, right = turned.chunk(2, dim=-1)
    else:
        left, right = turned[..., ::2], turned[..., 1::2]
    back = (left * cos + right * sin) / scale, (right * cos - left * sin) / scale
    pairs = torch.cat(back, -1) if is_neox_style else torch.stack(back, -1).flatten(-2)
    return torch.cat((pairs, unturned), -1)
