"""The cost of full prefill: a model fitted to a tenant's latest prompts that were computed in full."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import compress
from typing import TYPE_CHECKING, Literal

import numpy as np

from ragkv.service.base.database import Session
from ragkv.service.statistics.statements import full_runs, unstitched_runs

if TYPE_CHECKING:
    from sqlalchemy import Select

FITTED_OVER = timedelta(days=7)
"""Older prompts may have run on another machine."""
MAX_RUNS = 200
MIN_SPREAD = 1.5
"""Longest over shortest prompt, below which only milliseconds a token can be fitted."""

_TERMS = ((False, True, False), (True, True, False), (False, True, True), (True, True, True))
"""The coefficients that are fitted, simplest model first; that of a token always is."""

Basis = Literal["full", "recomputed"]


@dataclass(frozen=True, slots=True)
class PrefillRun:
    """A prompt of which `computed` tokens ran through the model behind `cached` ones, and the engine's time for it."""

    computed: int
    cached: int
    ms: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Milliseconds: for a prompt, for each computed token, for each pair of one and a token it attends to."""

    per_prompt: float
    per_token: float
    per_pair: float

    @property
    def terms(self) -> tuple[float, float, float]:
        return self.per_prompt, self.per_token, self.per_pair

    def of(self, computed: int, cached: int = 0) -> float:
        """Milliseconds to the first token when `computed` tokens run behind `cached` ones."""
        return float(np.dot(_features(computed, cached), self.terms))


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """A cost model and its basis: the number of questions answered in full or, without any, of those without stitched
    tokens."""

    cost: CostModel
    basis: Basis
    runs: int


def estimate(session: Session, tenant_id: str, model: str, now: datetime) -> CostEstimate | None:
    """The cost on this machine with the model of that name; None until a prompt was computed whole."""
    latest = (tenant_id, model, now - FITTED_OVER, MAX_RUNS)
    samples: tuple[tuple[Basis, Select[int, int, float]], ...] = (
        ("full", full_runs(*latest)),
        ("recomputed", unstitched_runs(*latest)),
    )
    for basis, statement in samples:
        runs = [PrefillRun(*row) for row in session.execute(statement)]
        if (cost := fit(runs)) is not None:
            return CostEstimate(cost, basis, len(runs))
    return None


def fit(runs: Sequence[PrefillRun]) -> CostModel | None:
    """The coefficients, none below 0, with the least relative error over all runs; None without a run.

    Relative, so that short prompts count as much as long ones, and a long wait in a queue counts as one run. From
    prompts of about one length only the cost of a token can be fitted.
    """
    timed = [run for run in runs if run.computed > 0 and run.ms > 0]
    if not timed:
        return None
    relative = np.array([_features(run.computed, run.cached) for run in timed]) / [[run.ms] for run in timed]
    lengths = sorted({run.computed for run in timed})
    is_spread = lengths[-1] >= MIN_SPREAD * lengths[0]
    all_terms = [terms for terms in _TERMS if sum(terms) <= len(lengths)] if is_spread else _TERMS[:1]
    fits = []
    for terms in all_terms:
        columns = list(compress(range(3), terms))
        scale = np.linalg.norm(relative[:, columns], axis=0)
        scaled, *_ = np.linalg.lstsq(relative[:, columns] / scale, np.ones(len(relative)))
        coefficients = np.zeros(3)
        coefficients[columns] = scaled / scale
        if not (coefficients < 0).any():
            error = float(np.square(relative @ coefficients - 1).sum())
            fits.append((error, CostModel(*coefficients.tolist())))
    return min(fits, key=lambda fitted: fitted[0])[1]


def _features(computed: int, cached: int) -> tuple[float, float, float]:
    return 1.0, float(computed), computed * (cached + computed / 2)
