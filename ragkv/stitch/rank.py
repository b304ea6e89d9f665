"""Ranking of chunks by a question's own attention, before any of them is in the prompt.

`by_qcache` goes by the chunks' Q-Cache, `chunk_shares` by all of their stored keys: the question runs behind the prefix
alone. In each head its queries attend to the prefix and to every chunk's stored keys, one softmax over all of them;
each chunk sees the question right behind it. Few heads know what a question is about: which ones is found on text
without labels (`ragkv calibrate-heads`).
"""

from collections.abc import Callable, Sequence

import torch

from ragkv.stitch.select import ChunkEvidence, attention_logits, block_logits, enriched_queries

Rotate = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(positions [tokens] int64, un-rotated [tokens, heads, head_dim]) -> rotated. May work in place."""


def by_qcache(question: torch.Tensor, chunks: Sequence[ChunkEvidence]) -> list[int]:
    """Indices of the chunks, those first whose blocks get most attention in the mean, by the vectors of the policy
    `contextual` (SamKV, arXiv 2508.11661).

    question: [q_layers, q_heads, head_dim]. A chunk without a Q-Cache keeps its place; ties go to the earlier one.
    """
    weights: dict[int, float] = {}
    seen = [
        (index, block_logits(query, chunk.mean_keys))
        for index, (query, chunk) in enumerate(zip(enriched_queries(question, chunks), chunks, strict=True))
        if chunk.mean_keys is not None
    ]
    if seen:
        shares = torch.cat([logits for _, logits in seen], dim=-1).softmax(-1).mean((0, 1))
        parts = torch.split(shares, [logits.shape[-1] for _, logits in seen])
        weights = {index: float(part.mean()) for (index, _), part in zip(seen, parts, strict=True)}
    ranked = iter(sorted(weights, key=weights.__getitem__, reverse=True))
    return [next(ranked) if index in weights else index for index in range(len(chunks))]


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
