"""vLLM's worker: selections that need the model's own view of the whole prompt, between stitching and recomputing.

Chunks that are recomputed anyway take no part, nor does what is exact as it was stored (StitchPlan.exact_end).

`deviation` is CacheBlend's choice (arXiv 2405.16444, section 4.3): the first layer is computed for the whole region;
the second layer's fresh keys are held against the stitched ones, and the tokens that differ most are recomputed in
every layer.

`question` lets the question choose, after ProphetKV (arXiv 2602.02579, section 4): its tokens run through the model in
place, over the stitched KV, as far as the last layer that chooses (`stitch.policies`), and the tokens that its last
queries attend to are recomputed. That costs a few tens of tokens; the context is not run. Which layers, queries and
blocks serve best was measured here (docs/BENCHMARKS.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ragkv.connector.internals import ModelInternals
from ragkv.connector.latent import Queries
from ragkv.connector.metadata import KVSlice, StitchRequest
from ragkv.span import Span, total_tokens
from ragkv.stitch.policies import POLICIES
from ragkv.stitch.select import QUERIES, attention_weights, blocks_of, budget_of, take_blocks

_CONTEXT_LAYER = 1  # the first layer whose keys depend on the context


@dataclass(frozen=True, slots=True)
class Stitched:
    """The slices of a request that were written, ascending, and their rotated keys in the layers that its policy looks
    at: [tokens of all slices, kv_heads, head_dim] each, of this rank's heads."""

    slices: Sequence[KVSlice]
    keys: Mapping[int, torch.Tensor]

    @property
    def num_tokens(self) -> int:
        return total_tokens(kv_slice.span for kv_slice in self.slices)


Scores = Callable[[ModelInternals, StitchRequest, Stitched], torch.Tensor]
"""(model, request, stitched) -> a score for each token that may be selected (`candidates_of`), in order, [tokens]
float32: over the heads of all ranks, and the same on each."""


def layers_looked_at(model: ModelInternals, stitch: StitchRequest) -> Sequence[int]:
    """Layers whose rotated keys the request's policy compares, ascending: of those that it chooses the ones that see
    the whole prompt, if any does. Raises Rejected for layers that the model lacks."""
    selection = stitch.plan.selection
    if selection is None:
        return ()
    if selection.policy == "deviation":
        return (_CONTEXT_LAYER,)
    layers = selection.choice.layers_of(len(model.layers))
    seeing = [layer for layer in layers if (model.window_of(layer) or stitch.plan.end) >= stitch.plan.end]
    return seeing or layers


def select_in_engine(model: ModelInternals, stitch: StitchRequest, stitched: Stitched) -> tuple[Span, ...]:
    """The blocks with the highest scores, up to the plan's ratio of the chunks' tokens in this request.

    Everything the plan places must be in the cache: stitched, or recomputed.
    """
    selection = stitch.plan.selection
    assert selection is not None, "the plan asks for no selection in the engine"
    candidates = candidates_of(stitch, stitched)
    if not candidates:
        return ()
    chunks = total_tokens(stitch.clip(placed.span) for placed in stitch.plan.placed[1:])
    scores = SCORES[selection.policy](model, stitch, stitched)
    spans = [kv_slice.span for kv_slice in candidates]
    return take_blocks(spans, scores.cpu(), selection.block_size, budget_of(selection.ratio, chunks))


def key_deviation(model: ModelInternals, stitch: StitchRequest, stitched: Stitched) -> torch.Tensor:
    """Squared distance of each token's fresh key from its stitched one, over all heads of a rank. [tokens] float32."""
    fresh = _fresh_keys(model, stitch)
    spans = [kv_slice.span for kv_slice in candidates_of(stitch, stitched)]
    start = stitch.region.start
    fresh_keys = torch.cat([fresh[span.start - start : span.end - start] for span in spans])
    stitched_keys = stitched.keys[_CONTEXT_LAYER][-total_tokens(spans) :]
    return model.ranks.mean((fresh_keys.float() - stitched_keys.float()).square().sum((1, 2)))


def question_attention(model: ModelInternals, stitch: StitchRequest, stitched: Stitched) -> torch.Tensor:
    """Attention of the question to each token: mean over queries and heads, summed over the layers that choose.
    [tokens] float32.

    Zeros if the question is not run (`run_question`): ties go to the latest tokens. Raises Rejected for layers that
    the model lacks.
    """
    num_candidates = total_tokens(kv_slice.span for kv_slice in candidates_of(stitch, stitched))
    scores = torch.zeros(num_candidates, device=model.device)

    def on_layer(layer: int, queries: Queries, _keys: torch.Tensor) -> None:
        weights = attention_weights(queries[-QUERIES:], stitched.keys[layer])
        scores.add_(weights[-len(scores) :])

    run_question(model, stitch, on_layer)
    return model.ranks.mean(scores)


SCORES: dict[str, Scores] = {
    "deviation": key_deviation,
    "question": question_attention,
}
"""Scores of every policy that selects in the engine (ragkv/stitch/policies.py)."""
assert set(SCORES) == {policy.name for policy in POLICIES.values() if policy.in_engine}


def candidates_of(stitch: StitchRequest, stitched: Stitched) -> list[KVSlice]:
    """The slices that may be selected, the last of all: what comes before them is exact as it was stored."""
    return [kv_slice for kv_slice in stitched.slices if kv_slice.span.start >= stitch.plan.exact_end]


def run_question(
    model: ModelInternals, stitch: StitchRequest, on_layer: Callable[[int, Queries, torch.Tensor], None]
) -> None:
    """Run the question in place over the stitched KV as far as the last of the layers that choose.

    `on_layer` is told (layer, rotated queries, rotated keys) of the question's tokens at each of them; never if the
    cache has no room for any of them, or the question is longer than a step may be: other requests would wait for it.
    """
    layers = layers_looked_at(model, stitch)

    def hook(layer: int, queries: Queries, keys: torch.Tensor, _values: torch.Tensor) -> None:
        if layer in layers:
            on_layer(layer, queries, keys)

    start = stitch.plan.end
    if len(stitch.token_ids) - start > model.max_tokens:
        return
    with model.with_room_for(len(stitch.token_ids), stitch.block_ids, layers[-1]) as table:
        question = Span(start, max(start, min(len(stitch.token_ids), len(table) * model.block_size)))
        if question.num_tokens:
            batch = model.batch([question], table)
            with model.attention_hook(hook, stop_at=layers[-1]):
                model.forward(stitch.token_ids[question.start : question.end], batch, table)


def _fresh_keys(model: ModelInternals, stitch: StitchRequest) -> torch.Tensor:
    """Rotated keys of layer 1 over the whole region, [tokens, kv_heads, head_dim], as full prefill has them.

    Runs layer 0 only, and leaves its fresh KV in place: layer 0 has no context to be wrong about.
    """
    block_ids = model.sent(torch.tensor(stitch.block_ids))
    keys_of_steps: list[torch.Tensor] = []

    def on_layer(layer: int, _queries: Queries, keys: torch.Tensor, _values: torch.Tensor) -> None:
        if layer == _CONTEXT_LAYER:
            keys_of_steps.append(keys.clone())

    for span in blocks_of(stitch.region, model.max_tokens):
        batch = model.batch([span], block_ids)
        with model.attention_hook(on_layer, stop_at=_CONTEXT_LAYER):
            model.forward(stitch.token_ids[span.start : span.end], batch, block_ids)
    return torch.cat(keys_of_steps)
