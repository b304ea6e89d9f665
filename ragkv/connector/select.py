"""vLLM's worker: selections that need the model's own view of the whole prompt, between stitching and recomputing.

Chunks that are recomputed anyway take no part, nor does what is exact as it was stored (StitchPlan.exact_end).

`deviation` is CacheBlend's choice (arXiv 2405.16444, section 4.3): the first layer is computed for the whole region; the
second layer's fresh keys are held against the stitched ones, and the tokens that differ most are recomputed in every layer.

`question` lets the question choose, after ProphetKV (arXiv 2602.02579, section 4): its tokens run through the model in
place, over the stitched KV, as far as the layers that select best, and the tokens that its last queries attend to are
recomputed. That costs a few tens of tokens; the context is not run. Which layers, queries and blocks serve best was
measured here (docs/BENCHMARKS.md).
"""

from collections.abc import Callable, Sequence

import torch

from ragkv.connector.internals import ModelInternals, StopForward
from ragkv.connector.metadata import KVSlice, StitchRequest
from ragkv.kv.layout import Layout
from ragkv.policies import POLICIES
from ragkv.span import Span, total_tokens
from ragkv.stitch.select import budget_of, take_blocks

_CONTEXT_LAYER = 1  # the first layer whose keys depend on the context
_QUERIES = 4  # the last of the question's: those that are about to answer

Scores = Callable[[ModelInternals, Layout, StitchRequest, Sequence[KVSlice], torch.Tensor], torch.Tensor]
"""(model, layout, request, slices, block ids [blocks] int64) -> a score for each token of the slices, in order, [tokens]
float32."""


def select_in_engine(
    model: ModelInternals, layout: Layout, stitch: StitchRequest, slices: Sequence[KVSlice], block_ids: torch.Tensor
) -> tuple[Span, ...]:
    """The blocks with the highest scores, up to the plan's ratio of the chunks' tokens in this request.

    Everything the plan places must be in the cache: stitched, or recomputed. block_ids: [blocks] int64, the request's.
    """
    selection = stitch.plan.selection
    assert selection is not None, "the plan asks for no selection in the engine"
    candidates = [one for one in slices if one.span.start >= stitch.plan.exact_end]
    if not candidates:
        return ()
    chunks = total_tokens(stitch.clip(placed.span) for placed in stitch.plan.placed[1:])
    scores = _SCORES[selection.policy](model, layout, stitch, candidates, block_ids)
    spans = [one.span for one in candidates]
    return take_blocks(spans, scores.cpu(), selection.block_size, budget_of(selection.ratio, chunks))


def key_deviation(
    model: ModelInternals, layout: Layout, stitch: StitchRequest, slices: Sequence[KVSlice], block_ids: torch.Tensor
) -> torch.Tensor:
    """Squared distance of each token's fresh key from its stitched one, over all heads. [tokens] float32."""
    fresh = _fresh_keys(model, stitch, block_ids)
    return torch.cat([_deviation(model, one, fresh, stitch.start) for one in slices])


def question_attention(
    model: ModelInternals, layout: Layout, stitch: StitchRequest, slices: Sequence[KVSlice], block_ids: torch.Tensor
) -> torch.Tensor:
    """Attention of the question to each token of the slices: mean over queries, heads and layers. [tokens] float32.

    Zeros if the step has no room for any token of the question in the cache: ties go to the latest tokens.
    """
    scores = torch.zeros(sum(one.span.num_tokens for one in slices), device=model.device)
    # The tokens behind the plan that this step has cache slots for: all of them, but in a very full step.
    start = stitch.plan.end
    question = Span(start, max(start, min(len(stitch.token_ids), len(stitch.block_ids) * model.block_size)))
    if not question.num_tokens:
        return scores

    def on_layer(layer: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor) -> None:
        if layer in layout.q_layers:
            keys = torch.cat([_stitched_keys(model, one, layer) for one in slices])
            scores.add_(_attention(query.view(-1, layout.q_heads, layout.head_dim)[-_QUERIES:], keys))
        if layer >= layout.q_layers.stop - 1:
            raise StopForward

    ids = torch.tensor(stitch.token_ids, device=model.device)
    batch = model.batch([question], block_ids)
    with model.attention_hook(on_layer):
        model.forward(ids[batch.positions], batch, block_ids)
    return scores


_SCORES: dict[str, Scores] = {"deviation": key_deviation, "question": question_attention}
"""Of every policy that selects in the engine (ragkv/policies.py)."""
assert set(_SCORES) == {policy.name for policy in POLICIES.values() if policy.in_engine}


def _stitched_keys(model: ModelInternals, one: KVSlice, layer: int) -> torch.Tensor:
    """A slice's keys of one layer as they were written into the cache, [tokens, kv_heads, head_dim]."""
    stored = one.kv.keys[layer, one.offset : one.offset + one.span.num_tokens].clone()
    positions = torch.arange(one.span.start, one.span.end, device=model.device)
    return model.rotate(positions, stored.to(model.device))


def _fresh_keys(model: ModelInternals, stitch: StitchRequest, block_ids: torch.Tensor) -> torch.Tensor:
    """Rotated keys of layer 1 over the whole region, [tokens, kv_heads, head_dim], as full prefill has them.

    Runs layer 0 only, and leaves its fresh KV in place: layer 0 has no context to be wrong about.
    """
    ids = torch.tensor(stitch.token_ids, device=model.device)
    keys: list[torch.Tensor] = []

    def on_layer(layer: int, _query: torch.Tensor, key: torch.Tensor, _value: torch.Tensor) -> None:
        if layer == _CONTEXT_LAYER:
            keys.append(key.clone())
            raise StopForward

    for start in range(stitch.start, stitch.end, model.max_tokens):
        batch = model.batch([Span(start, min(start + model.max_tokens, stitch.end))], block_ids)
        with model.attention_hook(on_layer):
            model.forward(ids[batch.positions], batch, block_ids)
    return torch.cat(keys)


def _deviation(model: ModelInternals, one: KVSlice, fresh: torch.Tensor, region_start: int) -> torch.Tensor:
    """[tokens] float32 of one slice. fresh: [region tokens, kv_heads * head_dim], rotated."""
    span, stitched = one.span, _stitched_keys(model, one, _CONTEXT_LAYER)
    now = fresh[span.start - region_start : span.end - region_start].view(stitched.shape)
    return (now.float() - stitched.float()).square().sum((1, 2))


def _attention(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Mean softmax weights [tokens] float32 of rotated queries [n, q_heads, head_dim] over keys [tokens, kv_heads, head_dim]."""
    n, q_heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    grouped = queries.float().view(n, kv_heads, q_heads // kv_heads, head_dim)
    logits = torch.einsum("nkgd,tkd->nkgt", grouped, keys.float()) * head_dim**-0.5
    weights: torch.Tensor = logits.softmax(-1).mean((0, 1, 2))
    return weights
