"""Sparse prompts: which of the passages are read."""

import pytest

from ragkv.answer.service import within_share
from ragkv.chunk import Chunk, Passage


def passages(*tokens: int) -> list[Passage]:
    """Passages of so many tokens, best first."""
    return [
        Passage(Chunk(str(i), "d", i, "", "text", 0, 4, None, tuple(range(n))), float(-i), 1)
        for i, n in enumerate(tokens)
    ]


@pytest.mark.parametrize(
    ("tokens", "share", "read"),
    [
        ((10, 10, 10, 10), 0.5, [0, 1]),
        ((10, 10, 10, 10), 0.75, [0, 1, 2]),
        ((10, 10, 10, 10), 0.7, [0, 1]),
        ((10, 10, 10, 10), 1.0, [0, 1, 2, 3]),
        ((10, 25, 5, 10), 0.5, [0, 2, 3]),
        ((10, 10, 10, 10), 0.01, [0]),
        ((30, 1, 10, 10), 0.5, [0]),
        ((10,), 0.5, [0]),
    ],
    ids=[
        "half",
        "more",
        "whole ones alone",
        "all",
        "a smaller one instead",
        "one at least",
        "the best in any case",
        "one",
    ],
)
def test_the_best_that_fit_are_read(tokens: tuple[int, ...], share: float, read: list[int]):
    assert [passage.chunk.ordinal for passage in within_share(passages(*tokens), share)] == read
