"""Rivals' selectors: about their budget, and the same each time."""

from bench.fidelity.methods import select_random
from ragkv.span import Span, total_tokens

SPANS = Span(11, 51), Span(51, 84), Span(84, 148), Span(148, 153)


def test_random_spends_its_budget_and_no_more():
    for budget in (0, 1, 17, 90, 142):
        assert total_tokens(select_random(SPANS, 2, budget)) == budget


def test_random_is_the_same_each_time():
    assert select_random(SPANS, 16, 40) == select_random(SPANS, 16, 40) != select_random(SPANS, 8, 40)
