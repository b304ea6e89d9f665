"""What a prompt costs when all of it is computed: prices fitted to prompts that were. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

MIN_SPREAD = 1.5
"""Longest over shortest prompt, below which the samples say one thing only: milliseconds a token."""

_TERMS = ((False, True, False), (True, True, False), (False, True, True), (True, True, True))
"""Which prices are fitted, simplest first; the price of a token always is."""


@dataclass(frozen=True, slots=True)
class Run:
    """A prompt of which `computed` tokens ran through the model behind `cached` ones, and the engine's time for it."""

    computed: int
    cached: int
    ms: float


@dataclass(frozen=True, slots=True)
class Price:
    """Milliseconds: for a prompt, for each computed token, for each pair of one and a token it attends to."""

    per_prompt: float
    per_token: float
    per_pair: float

    @property
    def terms(self) -> tuple[float, float, float]:
        return self.per_prompt, self.per_token, self.per_pair

    def of(self, computed: int, cached: int = 0) -> float:
        """Milliseconds to the first token when so many tokens are computed behind so many cached ones."""
        return float(np.dot(_features(computed, cached), self.terms))


def fit(runs: Sequence[Run]) -> Price | None:
    """The prices, none below 0, that come nearest to all runs by relative error; None without a run.

    Relative, so that short prompts count as much as long ones, and one that waited in a queue for long counts as one.
    Prompts of about one length say nothing about how the cost grows: then each token costs the same.
    """
    timed = [run for run in runs if run.computed > 0 and run.ms > 0]
    if not timed:
        return None
    relative = np.array([_features(run.computed, run.cached) for run in timed]) / [[run.ms] for run in timed]
    fits = [fitted for terms in _terms(timed) if (fitted := _fit(relative, terms)) is not None]
    return min(fits, key=lambda fitted: fitted[0])[1]


def _terms(runs: Sequence[Run]) -> tuple[tuple[bool, bool, bool], ...]:
    lengths = sorted({run.computed for run in runs})
    if lengths[-1] < MIN_SPREAD * lengths[0]:
        return _TERMS[:1]
    return tuple(terms for terms in _TERMS if sum(terms) <= len(lengths))


def _fit(
    relative: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", terms: tuple[bool, ...]
) -> tuple[float, Price] | None:
    """(error, price) of the least squares with these terms; None if a price comes out below 0."""
    columns = list(compress(range(3), terms))
    scale = np.linalg.norm(relative[:, columns], axis=0)
    found, *_ = np.linalg.lstsq(relative[:, columns] / scale, np.ones(len(relative)))
    prices = np.zeros(3)
    prices[columns] = found / scale
    if (prices < 0).any():
        return None
    error = float(np.square(relative @ prices - 1).sum())
    return error, Price(*prices.tolist())


def _features(computed: int, cached: int) -> tuple[float, float, float]:
    return 1.0, float(computed), computed * (cached + computed / 2)
