"""Ranking of chunks by the question's attention, before any of them is in the prompt.

The question runs behind the prefix alone. In each head its queries attend to the prefix and to every chunk's stored
keys, one softmax over all of them; each chunk sees the question right behind it. Few heads know what a question is
about: which ones is found on text without labels (`ragkv calibrate-heads`).
"""

from collections.abc import Callable, Sequence

import torch

from ragkv.stitch.select import attention_logits, query_slices

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
    starts = [0] + [len(prefix)] * len(chunks)
    placed = [
        rotate(torch.arange(start, start + len(keys), device=keys.device), keys.clone())
        for start, keys in zip(starts, (prefix, *chunks), strict=True)
    ]
    sizes = [len(keys) for keys in placed]
    shares = torch.zeros(queries.shape[1], len(chunks), device=queries.device)
    for part in query_slices(queries, sum(sizes)):
        logits = [
            attention_logits(rotate(start + len(keys) + places[part], queries[part].clone()), keys)
            for start, keys in zip(starts, placed, strict=True)
        ]
        weights = torch.cat(logits, -1).softmax(-1).sum(0).flatten(0, 1)
        shares += torch.stack([each.sum(-1) for each in torch.split(weights, sizes, -1)[1:]], -1)
    return shares / len(queries)
