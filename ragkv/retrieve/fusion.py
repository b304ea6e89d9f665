"""Reciprocal rank fusion of several rankings."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

FUSION_CONSTANT = 2
"""Reciprocal rank fusion, with Qdrant's constant: rank r, from 0, counts 1 / (FUSION_CONSTANT + r)."""


def fused(orders: Iterable[Sequence[T]]) -> list[tuple[T, float]]:
    """Items of all rankings, best first, each with its score:
    the sum of 1 / (FUSION_CONSTANT + its rank) in each order.

    Equal ones in the order in which they come up. Cormack, Clarke and Büttcher, SIGIR 2009.
    """
    scores: dict[T, float] = defaultdict(float)
    for order in orders:
        for rank, one in enumerate(order):
            scores[one] += 1 / (FUSION_CONSTANT + rank)
    return sorted(scores.items(), key=lambda found: -found[1])
