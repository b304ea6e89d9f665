"""KVShareArena's figures (arXiv 2609.10266): the share of a context's gain that is kept, and paired differences. Pure
functions.

With the arena's own random numbers, so that its scorer computes the same intervals from the same answers.
"""

import random
import statistics
from collections.abc import Mapping

import msgspec

_SEED = 20260730
_DRAWS = 10_000
_LOW, _HIGH = 249, 9_749  # of the sorted draws: the middle 95%
_LEAST_GAIN = 1e-3


class PairedDifference(msgspec.Struct, frozen=True):
    """Mean difference in F1 to the same questions under another method, with its 95% interval."""

    mean: float
    interval: tuple[float, float]

    @property
    def direction(self) -> str | None:
        """Return "up" or "down" if the interval excludes 0, else None."""
        if self.interval[0] <= 0 <= self.interval[1]:
            return None
        return "up" if self.mean > 0 else "down"


def performance_gap_recovered(f1: float, floor: float, ceiling: float) -> float | None:
    """PGR: 0 as without context, 1 as after full prefill; below 0 worse than no context. None where the context gains
    nothing."""
    return None if ceiling - floor <= _LEAST_GAIN else (f1 - floor) / (ceiling - floor)


def paired_difference(f1: Mapping[str, float], other: Mapping[str, float]) -> PairedDifference:
    """Difference of mean F1, resampled by question. Both arguments: F1 by the same ids."""
    differences = [f1[one] - other[one] for one in sorted(f1)]
    draw, n = random.Random(_SEED), len(differences)  # noqa: S311 - the arena's resamples, not a secret
    means = sorted(sum(differences[draw.randrange(n)] for _ in range(n)) / n for _ in range(_DRAWS))
    return PairedDifference(statistics.fmean(differences), (means[_LOW], means[_HIGH]))
