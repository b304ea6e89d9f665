"""Selection of the tokens to recompute: a pure function for each policy that needs no model.

Every selector takes the evidence and returns disjoint spans of exactly the budget (or of the whole context, if that
is smaller). Ties go to the later position.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ragkv.kv.format import QCACHE_BLOCK
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.policies import POLICIES


@dataclass(frozen=True, slots=True)
class ChunkEvidence:
    """One chunk of the context. `score` is its passage's; `local` and `mean_keys` are its Q-Cache (see PlainKV)."""

    span: Span
    score: float = 0.0
    local: torch.Tensor | None = None
    mean_keys: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for a selector. `question`: [q_layers, q_heads, head_dim], the question's initial vectors."""

    chunks: tuple[ChunkEvidence, ...]
    question: torch.Tensor | None = None
    block_size: int = QCACHE_BLOCK


Selector = Callable[[Evidence, int], tuple[Span, ...]]


def budget_of(ratio: float, num_tokens: int) -> int:
    """Tokens that a recompute ratio allows."""
    return min(num_tokens, round(ratio * num_tokens))


def select_none(evidence: Evidence, budget: int) -> tuple[Span, ...]:
    """Nothing: the stitched KV as it is."""
    return ()


def select_head(evidence: Evidence, budget: int) -> tuple[Span, ...]:
    """The first tokens of every chunk, the same number each (EPIC, arXiv 2410.15332)."""
    waiting = [chunk.span for chunk in evidence.chunks]
    heads: list[Span] = []
    for position, span in enumerate(sorted(waiting, key=lambda s: s.num_tokens)):
        share = (budget - total_tokens(heads)) / (len(waiting) - position)
        heads.append(Span(span.start, span.start + min(span.num_tokens, round(share))))
    return merge(heads)


def select_initial(evidence: Evidence, budget: int) -> tuple[Span, ...]:
    """Blocks the question's own vectors attend to most, before any document was seen."""
    assert evidence.question is not None, "`initial` needs the question's vectors"
    return _by_attention(evidence, [evidence.question] * len(evidence.chunks), budget)


def select_contextual(evidence: Evidence, budget: int) -> tuple[Span, ...]:
    """Like `initial`, the question's vectors enriched for each chunk by what the others say.

    q_i = q + 1/(D-1) * sum over j != i of |cos(q, local_j)| * local_j  (SamKV, arXiv 2508.11661).
    """
    assert evidence.question is not None, "`contextual` needs the question's vectors"
    return _by_attention(evidence, enriched_queries(evidence.question, evidence.chunks), budget)


SELECTORS: dict[str, Selector] = {
    "none": select_none,
    "head": select_head,
    "initial": select_initial,
    "contextual": select_contextual,
}
"""Selectors of every policy that does not select in the engine."""
assert set(SELECTORS) == {policy.name for policy in POLICIES.values() if not policy.in_engine}


def block_size_of(policy: str) -> int:
    """Tokens a block where no other size is asked for: CacheBlend chooses single tokens, the rest is measured."""
    return POLICIES[policy].block_size or QCACHE_BLOCK


def enriched_queries(question: torch.Tensor, chunks: Sequence[ChunkEvidence]) -> list[torch.Tensor]:
    """The question's vectors as each chunk sees them, [q_layers, q_heads, head_dim] each. Chunks without a Q-Cache add
    nothing."""
    views = [
        torch.zeros_like(question)
        if chunk.local is None
        else torch.cosine_similarity(question, chunk.local, dim=-1).abs().unsqueeze(-1) * chunk.local
        for chunk in chunks
    ]
    total = torch.stack(views).sum(0) if views else torch.zeros_like(question)
    return [question + (total - view) / max(len(chunks) - 1, 1) for view in views]


def _by_attention(evidence: Evidence, queries: Sequence[torch.Tensor], budget: int) -> tuple[Span, ...]:
    blocks, logits = [], []
    for chunk, query in zip(evidence.chunks, queries, strict=True):
        if chunk.mean_keys is None:  # no Q-Cache: such a chunk is missing and is recomputed whole anyway
            continue
        blocks += blocks_of(chunk.span, evidence.block_size)
        logits.append(block_logits(query, regroup(chunk.mean_keys, chunk.span.num_tokens, evidence.block_size)))
    if not blocks:
        return ()
    return _take_best(blocks, torch.cat(logits, dim=-1).softmax(-1).mean((0, 1)), budget)


def block_logits(query: torch.Tensor, mean_keys: torch.Tensor) -> torch.Tensor:
    """Attention logits of one query vector over blocks, each block seen as its mean key.

    query: [layers, q_heads, head_dim]; mean_keys: [blocks, layers, kv_heads, head_dim].
    Returns [layers, q_heads, blocks].
    """
    layers, q_heads, head_dim = query.shape
    kv_heads = mean_keys.shape[2]
    grouped = query.view(layers, kv_heads, q_heads // kv_heads, head_dim)
    logits: torch.Tensor = torch.einsum("lkgd,blkd->lkgb", grouped, mean_keys) * head_dim**-0.5
    return logits.reshape(layers, q_heads, -1)


def regroup(mean_keys: torch.Tensor, num_tokens: int, block_size: int) -> torch.Tensor:
    """Mean keys of blocks of `block_size` from those of QCACHE_BLOCK, each token counted once. [blocks, q_layers,
    kv_heads, head_dim].

    A smaller block takes the mean of the stored block it starts in: the stored ones are the finest there are.
    """
    if block_size == QCACHE_BLOCK:
        return mean_keys
    stored = torch.arange(num_tokens) // QCACHE_BLOCK
    blocks = torch.arange(num_tokens) // block_size
    weights = torch.zeros(int(blocks[-1]) + 1, mean_keys.shape[0])
    weights.index_put_((blocks, stored), torch.ones(num_tokens), accumulate=True)
    weights /= weights.sum(1, keepdim=True)
    regrouped: torch.Tensor = torch.tensordot(weights, mean_keys, dims=1)
    return regrouped


MAX_LOGITS = 2**24
"""64 MiB of float32, and a softmax takes three times that: a question of thousands of tokens would take gigabytes."""
QUERIES = 4
"""The last of a question's, those that are about to answer: what they attend to is selected."""


def attention_weights(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Softmax weights of keys [tokens, kv_heads, head_dim], mean over rotated queries [n, q_heads, head_dim]. [tokens]
    float32."""
    return attention_logits(queries, keys).softmax(-1).mean((0, 1, 2))


def causal_attention_weights(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Softmax weights [n, tokens] float32, mean over heads, where the last n keys are those of the queries' own tokens.

    queries: [n, q_heads, head_dim], keys: [tokens, kv_heads, head_dim], both rotated.
    """
    n, tokens = len(queries), len(keys)
    weights = torch.empty(n, tokens, device=keys.device)
    for part in query_slices(queries, tokens):
        later = torch.arange(tokens, device=keys.device) > torch.arange(n, device=keys.device)[part, None] + tokens - n
        logits = attention_logits(queries[part], keys).masked_fill(later[:, None, None], -torch.inf)
        weights[part] = logits.softmax(-1).mean((1, 2))
    return weights


def query_slices(queries: torch.Tensor, num_keys: int) -> Iterator[slice]:
    """Slices of queries [n, q_heads, head_dim], in order, whose logits take MAX_LOGITS numbers or are one query's."""
    step = max(1, MAX_LOGITS // max(1, queries.shape[1] * num_keys))
    return (slice(start, start + step) for start in range(0, len(queries), step))


def attention_logits(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """[n, kv_heads, q_heads / kv_heads, tokens] float32."""
    n, q_heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    grouped = queries.float().view(n, kv_heads, q_heads // kv_heads, head_dim)
    logits: torch.Tensor = torch.einsum("nkgd,tkd->nkgt", grouped, keys.float()) * head_dim**-0.5
    return logits


def blocks_of(span: Span, size: int) -> list[Span]:
    """The blocks of `size` tokens in a span; the last may be shorter."""
    return [Span(start, min(start + size, span.end)) for start in range(span.start, span.end, size)]


def take(best_first: Sequence[Span], budget: int) -> tuple[Span, ...]:
    """Spans in order until the budget is spent; of the last one only its end is taken if it does not fit."""
    spans: list[Span] = []
    left = budget
    for span in best_first:
        if left <= 0:
            break
        spans.append(Span(max(span.start, span.end - left), span.end))
        left -= spans[-1].num_tokens
    return merge(spans)


def take_blocks(spans: Sequence[Span], scores: torch.Tensor, block_size: int, budget: int) -> tuple[Span, ...]:
    """The blocks of `spans` with the highest mean score per token. scores: [tokens] float32, those of the spans in
    order."""
    blocks = [block for span in spans for block in blocks_of(span, block_size)]
    sizes = torch.tensor([block.num_tokens for block in blocks])
    sums = torch.zeros(len(blocks)).index_add_(0, torch.arange(len(blocks)).repeat_interleave(sizes), scores.float())
    return _take_best(blocks, sums / sizes, budget)


def _take_best(blocks: Sequence[Span], scores: torch.Tensor, budget: int) -> tuple[Span, ...]:
    ranked = sorted(zip(scores.tolist(), blocks, strict=True), key=lambda p: (p[0], p[1].start), reverse=True)
    return take([block for _, block in ranked], budget)
