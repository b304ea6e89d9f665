"""The choice of layers: of a few candidates by cover, the one with the lowest KL, unless the default may be just as
good."""

from collections.abc import Mapping, Sequence

import numpy as np

from ingest.calibrate.cover import Observed
from ragkv.calibration import Ratio
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.errors import Rejected
from ragkv.evaluation.metrics import geometric_ratio, interval, resamples

BEST_LAYERS = 3
FINALISTS = 4
_LEAST_OBSERVED = 6


def finalists(observed: Sequence[Observed], num_layers: int) -> list[Choice]:
    """The default, and the few other choices with the greatest mean cover: the most by cover is not always the least by
    KL.

    Raises Rejected if too few contexts have anything to gain.
    """
    telling = [one for one in observed if one.cover(DEFAULT_CHOICE) is not None]
    if len(telling) < _LEAST_OBSERVED:
        raise Rejected(
            f"stitching changes the answers of only {len(telling)} of {len(observed)} contexts: there is nothing to "
            "calibrate on this text; choose another collection"
        )

    def covers(choice: Choice) -> list[float]:
        return [one.cover(choice) or 0.0 for one in telling]

    single = [sum(covers(Choice((layer,)))) for layer in range(num_layers)]
    others = [choice for choice in candidates(num_layers, single) if choice != DEFAULT_CHOICE]
    return [DEFAULT_CHOICE, *sorted(others, key=lambda choice: sum(covers(choice)), reverse=True)[:FINALISTS]]


def choose(kls: Mapping[Choice, Sequence[float]]) -> Choice:
    """The choice with the least geometric mean KL. The default, unless the whole interval of the ratio to its KL lies
    below 1.

    kls: of the same cases for each choice, the default among them.
    """
    over_default = {choice: ratio_of(kl, kls[DEFAULT_CHOICE]) for choice, kl in kls.items()}
    best = min(over_default, key=lambda choice: over_default[choice].mean)
    return best if over_default[best].high < 1 else DEFAULT_CHOICE


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """The geometric mean of ours / theirs, paired by case."""
    both = np.array([ours, theirs])
    around = interval(geometric_ratio(*both[:, resamples(len(ours), 0)]))
    assert around is not None, "KLs are numbers"
    return Ratio(float(geometric_ratio(*both)), *around)


def candidates(num_layers: int, single: Sequence[float]) -> list[Choice]:
    """The default's layers, every window of a third of all, and the best few by their own covers, each with and without
    the sink."""
    size = max(num_layers // 3, 1)
    layers = [DEFAULT_CHOICE.layers, *(tuple(range(start, start + size)) for start in range(num_layers - size + 1))]
    ranked = sorted(range(num_layers), key=lambda layer: single[layer], reverse=True)
    layers.append(tuple(sorted(ranked[:BEST_LAYERS])))
    return [Choice(each, sink_aware) for each in layers for sink_aware in (False, True)]
