"""Selections that need the model's own view of the whole prompt, made between stitching and recomputing.

Chunks that are recomputed anyway take no part, nor does what is exact as it was stored: the prefix, and the chunk right
behind it.
"""

from collections.abc import Callable, Sequence

import torch

from ragkv.connector.deviation import key_deviation
from ragkv.connector.internals import ModelInternals
from ragkv.connector.metadata import KVSlice, Load
from ragkv.connector.question import question_attention
from ragkv.kv.layout import Layout
from ragkv.span import Span, total_tokens
from ragkv.stitch.plan import StitchPlan
from ragkv.stitch.select import budget_of, take_blocks

Scores = Callable[[ModelInternals, Layout, Load, Sequence[KVSlice], torch.Tensor], torch.Tensor]
"""(model, layout, load, slices, block table) -> a score for each token of the slices, in order, [tokens] float32."""

_SCORES: dict[str, Scores] = {"deviation": key_deviation, "question": question_attention}


def select_late(
    model: ModelInternals, layout: Layout, load: Load, slices: Sequence[KVSlice], block_ids: torch.Tensor
) -> tuple[Span, ...]:
    """The blocks with the highest scores, up to the plan's ratio of the chunks' tokens in this load.

    Everything the plan places must be in the cache: stitched, or recomputed.
    """
    late = load.plan.late
    assert late is not None, "the plan asks for no late selection"
    exact = _exact_end(load.plan)
    candidates = [kv_slice for kv_slice in slices if kv_slice.span.start >= exact]
    if not candidates:
        return ()
    chunks = total_tokens(load.clip(placed.span) for placed in load.plan.placed[1:])
    scores = _SCORES[late.policy](model, layout, load, candidates, block_ids)
    spans = [kv_slice.span for kv_slice in candidates]
    return take_blocks(spans, scores.cpu(), late.block_size, budget_of(late.ratio, chunks))


def _exact_end(plan: StitchPlan) -> int:
    """Where the KV ends that is the same here as where it was prefilled: behind the prefix and the first chunk."""
    return plan.placed[min(1, len(plan.placed) - 1)].span.end
