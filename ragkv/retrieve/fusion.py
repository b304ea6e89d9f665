"""Reciprocal rank fusion of several rankings."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from ragkv.retrieve.index import Hit

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
        for rank, item in enumerate(order):
            scores[item] += 1 / (FUSION_CONSTANT + rank)
    return sorted(scores.items(), key=lambda scored: -scored[1])


def fused_hits(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion of several lists of hits."""
    document_of = {hit.chunk_id: hit.document_id for hits in lists for hit in hits}
    orders = ([hit.chunk_id for hit in hits] for hits in lists)
    return [Hit(chunk_id, document_of[chunk_id], score) for chunk_id, score in fused(orders)]
