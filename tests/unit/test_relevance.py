"""Scores on a scale from 0 to 1."""

import pytest

from ragkv.chunk import relevance_of


def test_relevance_keeps_the_order_of_scores_between_0_and_1():
    scores = [0.0, 1e-9, 0.1, 0.5, 1.0, 2.7, 1e3, 1e6]
    relevances = [relevance_of(score) for score in scores]

    assert relevances == sorted(set(relevances))
    assert relevances[0] == 0
    assert relevances[-1] < 1
    assert relevance_of(1.0) == pytest.approx(0.5)


def test_a_negative_score_is_no_relevance():
    """A question without a single word is searched by cosines."""
    assert relevance_of(-1.0) == relevance_of(-0.2) == 0
