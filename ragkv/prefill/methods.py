"""Selection of the tokens of a chunk to keep: a score per token from queries and keys of the model's own reading, then
the best of them.

One set of tokens a chunk, the same for all layers and heads, because vLLM's paged cache has one slot a token: the
papers choose for each head or layer, here their scores are the mean over heads and layers. The sinks of the papers are
the prefix's tokens, which are always there, and take their share of the softmax.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ragkv.kv.rule import COMPRESSING, Compression, CompressionMethod
from ragkv.prefill.view import ChunkView
from ragkv.stitch.select import causal_attention_weights

CUE = "Which names, places, dates and numbers do they mention?"
"""The question that `laq` has the model answer about each chunk."""
SINKS = 4
"""First tokens of a chunk that `streaming` keeps, as its paper does of a text."""
WINDOW = 16
"""Last tokens of a chunk whose queries `snapkv` asks, and which it keeps."""
SNAPKV_KERNEL, LAQ_KERNEL = 7, 3
"""Tokens over which scores are smoothed by their maximum, so that words stay whole."""


@dataclass(frozen=True, slots=True)
class Method:
    """score: [tokens of the chunk] float32. always: how many of its first and last tokens stay whatever their score,
    within a budget. looks: at queries and keys; a view of the chunk's length alone is enough otherwise."""

    score: Callable[[ChunkView], torch.Tensor]
    looks: bool = True
    always: Callable[[int], tuple[int, int]] = lambda budget: (0, 0)


def budget_of(keep: float, num_tokens: int) -> int:
    """Tokens that a keep ratio leaves of a chunk: one at least."""
    return max(1, min(num_tokens, round(keep * num_tokens)))


def kept_tokens(compression: Compression, view: ChunkView) -> list[int]:
    """Ascending offsets of the tokens that stay. Ties go to the earlier token."""
    budget = budget_of(compression.keep, view.num_tokens)
    method = METHODS[compression.method]
    scores = method.score(view).clone()
    num_first, num_last = method.always(budget)
    scores[:num_first] = torch.inf
    scores[view.num_tokens - num_last :] = torch.inf
    best_first: list[int] = scores.sort(descending=True, stable=True).indices[:budget].tolist()
    return sorted(best_first)


def streaming_scores(view: ChunkView) -> torch.Tensor:
    """Recency (StreamingLLM, arXiv 2309.17453): the last tokens stay, beside the first ones."""
    return torch.arange(view.num_tokens, dtype=torch.float32)


def h2o_scores(view: ChunkView) -> torch.Tensor:
    """Attention summed over the chunk's own queries (Heavy-Hitter Oracle, arXiv 2306.14048)."""
    return _mean_over_layers(view, 0, view.num_tokens).sum(0)


def snapkv_scores(view: ChunkView) -> torch.Tensor:
    """Attention of the chunk's last queries, smoothed (SnapKV, arXiv 2404.14469)."""
    weights = _mean_over_layers(view, max(0, view.num_tokens - WINDOW), view.num_tokens)
    return _smoothed(weights.mean(0), SNAPKV_KERNEL)


def laq_scores(view: ChunkView) -> torch.Tensor:
    """Attention of the tokens that the model itself decodes behind the chunk, smoothed (Lookahead Q-Cache, arXiv
    2505.20334)."""
    end = len(view.queries[0])
    return _smoothed(_mean_over_layers(view, end - view.num_decoded, end).mean(0), LAQ_KERNEL)


def _mean_over_layers(view: ChunkView, start: int, end: int) -> torch.Tensor:
    """Softmax weights of the chunk's tokens under queries [start, end), mean over heads and layers. [queries, tokens]
    float32."""
    seen = view.num_prefix + end
    weights = [
        causal_attention_weights(queries[start:end], keys[:seen])
        for queries, keys in zip(view.queries, view.keys, strict=True)
    ]
    return torch.stack(weights).mean(0)[:, view.num_prefix : view.num_prefix + view.num_tokens].cpu()


def _smoothed(scores: torch.Tensor, kernel: int) -> torch.Tensor:
    smoothed: torch.Tensor = torch.nn.functional.max_pool1d(scores[None, None], kernel, stride=1, padding=kernel // 2)
    return smoothed[0, 0]


METHODS: dict[str, Method] = {
    CompressionMethod.STREAMING: Method(streaming_scores, looks=False, always=lambda budget: (min(SINKS, budget), 0)),
    CompressionMethod.H2O: Method(h2o_scores, always=lambda budget: (0, budget // 2)),
    CompressionMethod.SNAPKV: Method(snapkv_scores, always=lambda budget: (0, min(WINDOW, budget // 2))),
    CompressionMethod.LAQ: Method(laq_scores),
}
assert set(METHODS) == set(COMPRESSING)
