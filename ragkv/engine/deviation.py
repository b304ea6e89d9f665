"""CacheBlend's choice: recompute the tokens whose keys changed most (arXiv 2405.16444, section 4.3).

The first layer is computed for the whole region; the second layer's fresh keys are held against the stitched ones, and
the tokens (here: blocks) with the highest deviation are recomputed in every layer.
"""

from collections.abc import Sequence

import torch

from ragkv.engine.internals import ModelInternals
from ragkv.engine.load import Load, Piece
from ragkv.span import Span
from ragkv.stitch.select import budget_of, take_blocks

_LAYER = 1  # the first layer whose keys depend on the context


class _Seen(Exception):
    pass


def select_by_deviation(
    model: ModelInternals, load: Load, pieces: Sequence[Piece], block_ids: torch.Tensor
) -> tuple[Span, ...]:
    """The blocks of the stitched pieces with the highest key deviation, up to the plan's ratio."""
    late = load.plan.late
    assert late is not None
    assert late.policy == "deviation", f"the engine knows no policy {late.policy}"
    spans = [piece.span for piece in pieces]
    fresh = _fresh_keys(model, load, block_ids)
    deviations = [_deviation(model, piece, fresh, load.start) for piece in pieces]
    return take_blocks(
        spans, torch.cat(deviations).cpu(), late.block_size, budget_of(late.ratio, load.region.num_tokens)
    )


def _fresh_keys(model: ModelInternals, load: Load, block_ids: torch.Tensor) -> torch.Tensor:
    """Rotated keys of layer 1 over the whole region, [tokens, kv_heads, head_dim], as full prefill has them.

    Runs layer 0 only, and leaves its fresh KV in place: layer 0 has no context to be wrong about.
    """
    ids = torch.tensor(load.token_ids, device=model.device)
    keys: list[torch.Tensor] = []

    def see(layer: int, _query: torch.Tensor, key: torch.Tensor, _value: torch.Tensor) -> None:
        if layer == _LAYER:
            keys.append(key.clone())
            raise _Seen

    for start in range(load.start, load.end, model.max_tokens):
        batch = model.batch([Span(start, min(start + model.max_tokens, load.end))], block_ids)
        try:
            with model.watching(see):
                model.forward(ids[batch.positions], batch, block_ids)
        except _Seen:
            pass
    return torch.cat(keys)


def _deviation(model: ModelInternals, piece: Piece, fresh: torch.Tensor, region_start: int) -> torch.Tensor:
    """Squared distance of each token's fresh key from its stitched one, over all heads. [tokens] float32."""
    span = piece.span
    stored = piece.kv.keys[_LAYER, piece.offset : piece.offset + span.num_tokens].clone()
    positions = torch.arange(span.start, span.end, device=model.device)
    stitched = model.rotate(positions, stored.to(model.device))
    now = fresh[span.start - region_start : span.end - region_start].view(stitched.shape)
    return (now.float() - stitched.float()).square().sum((1, 2))
