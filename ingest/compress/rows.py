"""KV of some of a chunk's tokens, taken from the KV of all of them."""

from collections.abc import Sequence

import torch

from ragkv.kv.file import ChunkKV, StoredKV, block_means
from ragkv.kv.layout import Layout


def rows_of(kv: StoredKV, offsets: Sequence[int], layout: Layout) -> ChunkKV:
    """The tokens at `offsets`, ascending, as if they were a chunk. Their keys are un-rotated: they may stand at any
    positions.

    Initial and local vectors stay the whole chunk's; mean keys are those of blocks of what is left.
    """
    shape = (layout.layers, kv.num_tokens, layout.kv_heads, layout.head_dim)
    keys, values = (torch.empty(shape, dtype=layout.dtype) for _ in "kv")
    kv.copy_into(keys, values, slice(0, layout.layers), 0)
    chosen = torch.tensor(offsets)
    keys = keys[:, chosen]
    return ChunkKV(keys, values[:, chosen], kv.initial, kv.local, block_means(keys, layout.q_layers))
