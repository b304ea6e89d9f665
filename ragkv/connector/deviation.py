"""CacheBlend's choice: recompute the tokens whose keys changed most (arXiv 2405.16444, section 4.3).

The first layer is computed for the whole region; the second layer's fresh keys are held against the stitched ones, and
the tokens with the highest deviation are recomputed in every layer.
"""

from collections.abc import Sequence

import torch

from ragkv.connector.internals import ModelInternals, Stopped
from ragkv.connector.metadata import KVSlice, Load
from ragkv.kv.layout import Layout
from ragkv.span import Span

_LAYER = 1  # the first layer whose keys depend on the context


def key_deviation(
    model: ModelInternals, layout: Layout, load: Load, slices: Sequence[KVSlice], block_ids: torch.Tensor
) -> torch.Tensor:
    """Squared distance of each token's fresh key from its stitched one, over all heads. [tokens] float32."""
    fresh = _fresh_keys(model, load, block_ids)
    return torch.cat([_deviation(model, kv_slice, fresh, load.start) for kv_slice in slices])


def stitched_keys(model: ModelInternals, kv_slice: KVSlice, layer: int) -> torch.Tensor:
    """A slice's keys of one layer as they were written into the cache, [tokens, kv_heads, head_dim]."""
    stored = kv_slice.kv.keys[layer, kv_slice.offset : kv_slice.offset + kv_slice.span.num_tokens].clone()
    positions = torch.arange(kv_slice.span.start, kv_slice.span.end, device=model.device)
    return model.rotate(positions, stored.to(model.device))


def _fresh_keys(model: ModelInternals, load: Load, block_ids: torch.Tensor) -> torch.Tensor:
    """Rotated keys of layer 1 over the whole region, [tokens, kv_heads, head_dim], as full prefill has them.

    Runs layer 0 only, and leaves its fresh KV in place: layer 0 has no context to be wrong about.
    """
    ids = torch.tensor(load.token_ids, device=model.device)
    keys: list[torch.Tensor] = []

    def see(layer: int, _query: torch.Tensor, key: torch.Tensor, _value: torch.Tensor) -> None:
        if layer == _LAYER:
            keys.append(key.clone())
            raise Stopped

    for start in range(load.start, load.end, model.max_tokens):
        batch = model.batch([Span(start, min(start + model.max_tokens, load.end))], block_ids)
        with model.watching(see):
            model.forward(ids[batch.positions], batch, block_ids)
    return torch.cat(keys)


def _deviation(model: ModelInternals, kv_slice: KVSlice, fresh: torch.Tensor, region_start: int) -> torch.Tensor:
    span, stitched = kv_slice.span, stitched_keys(model, kv_slice, _LAYER)
    now = fresh[span.start - region_start : span.end - region_start].view(stitched.shape)
    return (now.float() - stitched.float()).square().sum((1, 2))
