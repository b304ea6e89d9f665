"""The question's choice: recompute what it attends to when it reads the stitched context.

The question's tokens run through the model in place, over the stitched KV, as far as the layers that select best; what
their last queries attend to there is what shapes the answer. The question costs a few tens of tokens; the context is
not run. After ProphetKV (arXiv 2602.02579, section 4), which lets the user's query choose and calls it query-driven;
which layers, which queries and which blocks was measured here (docs/BENCHMARKS.md).
"""

from collections.abc import Sequence

import torch

from ragkv.connector.deviation import stitched_keys
from ragkv.connector.internals import ModelInternals, Stopped
from ragkv.connector.metadata import KVSlice, Load
from ragkv.kv.layout import Layout
from ragkv.span import Span

_QUERIES = 4  # the last of the question's: those that are about to answer


def question_attention(
    model: ModelInternals, layout: Layout, load: Load, slices: Sequence[KVSlice], block_ids: torch.Tensor
) -> torch.Tensor:
    """What the question attends to among the slices' tokens: mean over queries, heads and layers. [tokens] float32.

    Zeros if the step has no room for any token of the question in the cache: ties go to the latest tokens.
    """
    scores = torch.zeros(sum(kv_slice.span.num_tokens for kv_slice in slices), device=model.device)
    question = _question_in_cache(load, model.block_size)
    if not question.num_tokens:
        return scores

    def see(layer: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor) -> None:
        if layer in layout.q_layers:
            keys = torch.cat([stitched_keys(model, kv_slice, layer) for kv_slice in slices])
            scores.add_(_attention(query.view(-1, layout.q_heads, layout.head_dim)[-_QUERIES:], keys))
        if layer >= layout.q_layers.stop - 1:
            raise Stopped

    ids = torch.tensor(load.token_ids, device=model.device)
    batch = model.batch([question], block_ids)
    with model.watching(see):
        model.forward(ids[batch.positions], batch, block_ids)
    return scores


def _question_in_cache(load: Load, block_size: int) -> Span:
    """The tokens behind the plan that this step has cache slots for: all of them, but in a very full step."""
    start = load.plan.end
    return Span(start, max(start, min(len(load.token_ids), len(load.block_ids) * block_size)))


def _attention(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Mean softmax weights of rotated queries [n, q_heads, head_dim] over keys [tokens, kv_heads, head_dim]."""
    n, q_heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    grouped = queries.float().view(n, kv_heads, q_heads // kv_heads, head_dim)
    logits = torch.einsum("nkgd,tkd->nkgt", grouped, keys.float()) * head_dim**-0.5
    weights: torch.Tensor = logits.softmax(-1).mean((0, 1, 2))
    return weights
