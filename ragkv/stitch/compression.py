"""Selection of the tokens of a chunk to keep: a score per token from queries and keys of the model's own reading, then
the best of them.

One set of tokens a chunk, the same for all layers and heads, because vLLM's paged cache has one slot a token: the
papers choose for each head or layer, here their scores are the mean over heads and layers. The sinks of the papers are
the prefix's tokens, which are always there, and take their share of the softmax.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ragkv.kv.rule import COMPRESSING, Compression, CompressionMethod
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
class ChunkView:
    """Queries and keys of one chunk behind the prefix, and of the tokens put behind it: a cue, then `num_decoded` that
    the model decoded.

    queries: a tensor a layer, [num_tokens + behind, q_heads, head_dim]; keys: [num_prefix + num_tokens + behind,
    kv_heads, head_dim]; both rotated.
    """

    num_prefix: int
    num_tokens: int
    num_decoded: int
    queries: Sequence[torch.Tensor]
    keys: Sequence[torch.Tensor]

    def weights(self, asked: range) -> torch.Tensor:
        """Softmax weights of the chunk's tokens under the queries `asked`, mean over heads and layers. [queries,
        tokens] float32."""
        if not asked:
            return torch.empty(0, self.num_tokens)
        seen = self.num_prefix + asked.stop
        weights = [
            causal_attention_weights(queries[asked.start : asked.stop], keys[:seen])
            for queries, keys in zip(self.queries, self.keys, strict=True)
        ]
        return torch.stack(weights).mean(0)[:, self.num_prefix : self.num_prefix + self.num_tokens].cpu()


@dataclass(frozen=True, slots=True)
class Method:
    """Choice of tokens. asked: the queries that choose, among those of a chunk of so many tokens, with so many
    behind it of which so many were decoded. score: [tokens of the chunk] float32 from their weights [queries, tokens].
    always: how many of its first and last tokens stay whatever their score, within a budget. behind: whether the model
    goes on from the chunk."""

    asked: Callable[[int, int, int], range]
    score: Callable[[torch.Tensor], torch.Tensor]
    always: Callable[[int], tuple[int, int]] = lambda budget: (0, 0)
    behind: bool = False


def budget_of(keep: float, num_tokens: int) -> int:
    """Tokens that a keep ratio leaves of a chunk: one at least."""
    return max(1, min(num_tokens, round(keep * num_tokens)))


def kept_tokens(compression: Compression, weights: torch.Tensor) -> list[int]:
    """Ascending offsets of the tokens that stay, by the weights [queries, tokens] of the method's queries. Ties go to
    the earlier token."""
    num_tokens = weights.shape[1]
    budget = budget_of(compression.keep, num_tokens)
    method = METHODS[compression.method]
    scores = method.score(weights).clone()
    num_first, num_last = method.always(budget)
    scores[:num_first] = torch.inf
    scores[num_tokens - num_last :] = torch.inf
    best_first: list[int] = scores.sort(descending=True, stable=True).indices[:budget].tolist()
    return sorted(best_first)


def _smoothed(weights: torch.Tensor, kernel: int) -> torch.Tensor:
    scores = weights.mean(0)[None, None]
    smoothed: torch.Tensor = torch.nn.functional.max_pool1d(scores, kernel, stride=1, padding=kernel // 2)
    return smoothed[0, 0]


METHODS: dict[str, Method] = {
    # Recency (StreamingLLM, arXiv 2309.17453): the last tokens stay, beside the first ones.
    CompressionMethod.STREAMING: Method(
        lambda tokens, behind, decoded: range(0),
        lambda weights: torch.arange(weights.shape[1], dtype=torch.float32),
        lambda budget: (min(SINKS, budget), 0),
    ),
    # Attention summed over the chunk's own queries (Heavy-Hitter Oracle, arXiv 2306.14048).
    CompressionMethod.H2O: Method(
        lambda tokens, behind, decoded: range(tokens), lambda weights: weights.sum(0), lambda budget: (0, budget // 2)
    ),
    # Attention of the chunk's last queries, smoothed (SnapKV, arXiv 2404.14469).
    CompressionMethod.SNAPKV: Method(
        lambda tokens, behind, decoded: range(max(0, tokens - WINDOW), tokens),
        partial(_smoothed, kernel=SNAPKV_KERNEL),
        lambda budget: (0, min(WINDOW, budget // 2)),
    ),
    # Attention of the tokens that the model itself decodes behind the chunk, smoothed (Lookahead Q-Cache, arXiv
    # 2505.20334).
    CompressionMethod.LAQ: Method(
        lambda tokens, behind, decoded: range(tokens + behind - decoded, tokens + behind),
        partial(_smoothed, kernel=LAQ_KERNEL),
        behind=True,
    ),
}
assert set(METHODS) == set(COMPRESSING)
