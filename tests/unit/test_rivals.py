"""Rivals' selectors: about their budget, and about the right blocks."""

from bench.fidelity.rivals import SELECTORS
from ragkv.span import Span, total_tokens
from tests.unit.test_select import evidence


def test_passages_and_random_spend_their_budget_and_no_more():
    for policy in ("passages", "random"):
        for budget in (0, 1, 17, 90, 142):
            assert total_tokens(SELECTORS[policy](evidence(block_size=2), budget)) == budget


def test_random_is_the_same_under_the_same_seed():
    select = SELECTORS["random"]
    assert select(evidence(seed=3), 40) == select(evidence(seed=3), 40)
    assert select(evidence(seed=3), 40) != select(evidence(seed=4), 40)


def test_legolink_takes_the_first_block_of_every_chunk_whatever_the_budget():
    spans = SELECTORS["legolink"](evidence((30, 2, 30), block_size=4), 1)
    assert spans == (Span(11, 15), Span(41, 47))  # four tokens, then the two of the short one and four of its neighbour


def test_passages_takes_whole_passages_best_first():
    spans = SELECTORS["passages"](evidence((40, 33, 64, 5)), 64)
    assert spans == (Span(84, 148),)  # scores are 0, 1, 2, 0


def test_passages_takes_the_end_of_the_one_that_does_not_fit():
    assert SELECTORS["passages"](evidence((40, 33, 64, 5)), 10) == (Span(138, 148),)
