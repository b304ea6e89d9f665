"""Figures of a run: the outcomes of its questions, aggregated."""

import statistics
from collections.abc import Sequence

import numpy as np

from ragkv.service.evaluations.metrics import FAILURE_KL, Floats, gain_kept, interval, resamples
from ragkv.service.evaluations.outcome import (
    FidelityFigures,
    FidelityOutcome,
    Interval,
    RetrievalFigures,
    RetrievalOutcome,
)

_DIGITS = 4
_SEED = 0


def fidelity_figures(outcomes: Sequence[FidelityOutcome], skipped: int) -> FidelityFigures | None:
    """None without any outcome."""
    if not outcomes:
        return None
    draws = resamples(len(outcomes), _SEED)
    kl = np.array([outcome.kl for outcome in outcomes])
    nlls = [np.array([getattr(outcome, name) for outcome in outcomes]) for name in ("nll_without", "nll", "nll_full")]
    gain = float(gain_kept(*(nll.mean() for nll in nlls)))
    with_answer = [outcome for outcome in outcomes if outcome.f1 is not None]
    return FidelityFigures(
        questions=len(outcomes),
        skipped=skipped,
        with_answer=len(with_answer),
        gain_kept=None if np.isnan(gain) else _rounded(gain),
        gain_kept_interval=_interval(gain_kept(*(nll[draws].mean(1) for nll in nlls))),
        kl=_rounded(kl.mean()),
        kl_interval=_interval(kl[draws].mean(1)),
        kl_high=_percent([outcome.kl > FAILURE_KL for outcome in outcomes]),
        agree=_percent([outcome.agree for outcome in outcomes]),
        f1=_percent([outcome.f1 or 0.0 for outcome in with_answer]) if with_answer else None,
        f1_full=_percent([outcome.f1_full or 0.0 for outcome in with_answer]) if with_answer else None,
        ttft_ms=_rounded(statistics.median(outcome.ttft_ms for outcome in outcomes)),
        ttft_full_ms=_rounded(statistics.median(outcome.ttft_full_ms for outcome in outcomes)),
        speedup=_rounded(statistics.median(outcome.ttft_full_ms / max(outcome.ttft_ms, 1e-3) for outcome in outcomes)),
        recomputed=_share(outcomes, "recomputed_tokens", "context_tokens"),
        passages_without_kv=_rounded(100 * _share(outcomes, "passages_without_kv", "passages")),
    )


def retrieval_figures(outcomes: Sequence[RetrievalOutcome], skipped: int) -> RetrievalFigures | None:
    """None without any outcome."""
    if not outcomes:
        return None
    ranks = [outcome.ranks for outcome in outcomes]
    at_5 = 100 * np.array([_recall(of_one, 5) for of_one in ranks])
    return RetrievalFigures(
        questions=len(outcomes),
        skipped=skipped,
        recall_at_2=_percent([_recall(of_one, 2) for of_one in ranks]),
        recall_at_5=_rounded(at_5.mean()),
        recall_at_10=_percent([_recall(of_one, 10) for of_one in ranks]),
        recall_at_5_interval=_interval(at_5[resamples(len(outcomes), _SEED)].mean(1)),
        all_at_5=_percent([_recall(of_one, 5) == 1 for of_one in ranks]),
        mrr=_percent([max((1 / rank for rank in of_one if rank), default=0.0) for of_one in ranks]),
        search_ms=_rounded(statistics.median(outcome.search_ms for outcome in outcomes)),
    )


def _recall(ranks: Sequence[int | None], k: int) -> float:
    """The share of the gold passages, one at least, that are among the first k found."""
    return statistics.fmean(rank is not None and rank <= k for rank in ranks)


def _share(outcomes: Sequence[FidelityOutcome], part: str, whole: str) -> float:
    return _rounded(
        sum(getattr(outcome, part) for outcome in outcomes)
        / max(1, sum(getattr(outcome, whole) for outcome in outcomes))
    )


def _percent(values: Sequence[float]) -> float:
    return _rounded(100 * statistics.fmean(values))


def _rounded(value: float | Floats) -> float:
    return round(float(value), _DIGITS)


def _interval(drawn: Floats) -> Interval | None:
    around = interval(drawn)
    return None if around is None else Interval(*map(_rounded, around))
