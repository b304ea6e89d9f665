"""Figures of an evaluation, from the outcomes of its questions."""

import pytest

from ragkv.service.evaluations.figures import fidelity_figures, retrieval_figures
from ragkv.service.evaluations.known import supporting
from ragkv.service.evaluations.outcome import FidelityOutcome, GivenPassage, RetrievalOutcome


def outcome(**given: object) -> FidelityOutcome:
    usual = {"kl": 0.1, "nll": 0.6, "nll_full": 0.5, "nll_without": 2.5, "agree": True, "f1": None, "f1_full": None}
    work = {"recomputed_tokens": 10, "context_tokens": 100, "passages": 4, "passages_without_kv": 0}
    return FidelityOutcome(**usual | work | {"ttft_ms": 50.0, "ttft_full_ms": 200.0} | given)


def test_the_gain_kept_is_of_means_and_times_are_medians():
    figures = fidelity_figures(
        [
            outcome(),
            outcome(nll=1.5, kl=0.9, agree=False, f1=0.5, f1_full=1.0, ttft_ms=100.0, passages_without_kv=1),
            outcome(nll=0.5, nll_without=0.5, kl=0.0, ttft_full_ms=500.0),
        ],
        skipped=2,
    )

    assert figures is not None
    assert (figures.questions, figures.skipped, figures.with_answer) == (3, 2, 1)
    assert figures.gain_kept == pytest.approx((5.5 - 2.6) / (5.5 - 1.5), abs=1e-4)
    assert (figures.kl, figures.kl_high) == (pytest.approx(0.3333, abs=1e-4), pytest.approx(33.3333, abs=1e-3))
    assert (figures.f1, figures.f1_full) == (50.0, 100.0)
    assert (figures.ttft_ms, figures.ttft_full_ms, figures.speedup) == (50.0, 200.0, 4.0)
    assert (figures.recomputed, figures.passages_without_kv) == (0.1, pytest.approx(8.33))
    assert figures.kl_interval is not None
    assert figures.kl_interval.low <= figures.kl <= figures.kl_interval.high


def test_where_passages_add_nothing_there_is_nothing_to_keep():
    figures = fidelity_figures([outcome(nll_without=0.4)], 0)

    assert figures is not None
    assert (figures.gain_kept, figures.gain_kept_interval, figures.f1) == (None, None, None)


def test_recall_is_a_share_of_each_questions_passages():
    found = [RetrievalOutcome(ranks=ranks, search_ms=8.0) for ranks in ((1, 4), (None,), (6, None))]
    figures = retrieval_figures(found, 1)

    assert figures is not None
    assert (figures.questions, figures.skipped) == (3, 1)
    assert (figures.recall_at_2, figures.recall_at_5) == (pytest.approx(16.6667), pytest.approx(33.3333))
    assert (figures.recall_at_10, figures.all_at_5) == (50.0, pytest.approx(33.3333))
    assert figures.mrr == pytest.approx(100 * (1 + 1 / 6) / 3, abs=1e-3)


def test_without_any_outcome_there_are_no_figures():
    assert (fidelity_figures([], 3), retrieval_figures([], 3)) == (None, None)


def test_sentences_that_support_an_answer_are_to_be_found():
    passages = (
        GivenPassage("The engine was designed by Babbage. It was never built.", "Analytical engine"),
        GivenPassage("Ada Lovelace wrote the first program. She died in 1852.", "Ada Lovelace"),
    )

    assert supporting("Who wrote the first program?", "Ada Lovelace", passages) == (
        "Ada Lovelace wrote the first program.",
    )
