"""The choice of layers: the candidate that covers most, unless the default covers as much as far as can be told."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ingest.calibrate.cover import Observed
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.errors import Rejected

BEST_LAYERS = 3
DRAWS = 2000
_LEAST_OBSERVED = 6


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95% bootstrap interval over contexts."""

    mean: float
    low: float
    high: float


def interval_of(values: Sequence[float]) -> Interval:
    """The same draws for every call with as many values."""
    each = torch.tensor(values, dtype=torch.float64)
    rows = torch.randint(len(each), (DRAWS, len(each)), generator=torch.Generator().manual_seed(0))
    drawn = each[rows].mean(1).sort().values
    return Interval(each.mean().item(), drawn[int(0.025 * DRAWS)].item(), drawn[int(0.975 * DRAWS)].item())


def choose(observed: Sequence[Observed], num_layers: int) -> Choice:
    """The choice with the greatest mean cover. The default, unless the whole interval of the gain over it lies above 0.

    Raises Rejected if too few contexts have anything to gain.
    """
    telling = [one for one in observed if one.cover(DEFAULT_CHOICE) is not None]
    if len(telling) < _LEAST_OBSERVED:
        raise Rejected(
            f"stitching changes the answers of {len(telling)} of {len(observed)} contexts only: there is nothing to calibrate "
            "on this text; choose another collection"
        )

    def covers(choice: Choice) -> list[float]:
        return [one.cover(choice) or 0.0 for one in telling]

    single = [sum(covers(Choice((layer,)))) for layer in range(num_layers)]
    best = max(candidates(num_layers, single), key=lambda choice: sum(covers(choice)))
    gains = [ours - theirs for ours, theirs in zip(covers(best), covers(DEFAULT_CHOICE), strict=True)]
    return best if interval_of(gains).low > 0 else DEFAULT_CHOICE


def candidates(num_layers: int, single: Sequence[float]) -> list[Choice]:
    """Every window of a third of the layers, and the best few by their own covers, each with and without the sink."""
    size = max(num_layers // 3, 1)
    layers = [tuple(range(start, start + size)) for start in range(num_layers - size + 1)]
    ranked = sorted(range(num_layers), key=lambda layer: single[layer], reverse=True)
    layers.append(tuple(sorted(ranked[:BEST_LAYERS])))
    return [Choice(each, sink_aware) for each in layers for sink_aware in (False, True)]
