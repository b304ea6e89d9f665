"""Ranking of chunks by a question's own attention, before any of them is in the prompt.

The question runs behind the prefix alone. In each head its queries attend to the prefix and to every chunk's stored
keys, one softmax over all of them; each chunk sees the question right behind it. Few heads know what a question is
about: which ones is found on text without labels (`ragkv calibrate-heads`).
"""

from collections.abc import Callable, Sequence

import torch

from ragkv.stitch.select import attention_logits

Rotate = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(positions [tokens] int64, un-rotated [tokens, heads, head_dim]) -> rotated. May work in place."""


def chunk_shares(
    queries: torch.Tensor, places: torch.Tensor, prefix: torch.Tensor, chunks: Sequence[torch.Tensor], rotate: Rotate
) -> torch.Tensor:
    """Share of the attention of one layer's heads that falls to each chunk, mean over queries. [q_heads, chunks]
    float32.

    queries: [n, q_heads, head_dim], those of the question's text; places: [n] int64, where they stand in the question;
    prefix, chunks: [tokens, kv_heads, head_dim] each. All un-rotated.
    """
    logits = []
    for keys, start in [(prefix, 0), *((chunk, len(prefix)) for chunk in chunks)]:
        end = start + len(keys)
        placed = rotate(torch.arange(start, end, device=keys.device), keys.clone())
        asking = rotate(end + places, queries.clone())
        logits.append(attention_logits(asking, placed))
    weights = torch.cat(logits, -1).softmax(-1).mean(0).flatten(0, 1)
    parts = torch.split(weights, [len(keys) for keys in (prefix, *chunks)], -1)
    return torch.stack([part.sum(-1) for part in parts[1:]], -1)
