"""A search among more documents than one request may name is that of a request that names them all."""

import random

import pytest

from ragkv.retrieve.index import DocumentIds, Hit, fused_hits
from ragkv.retrieve.qdrant import MOST_NAMED, WIDER, best_among

HITS = [Hit(f"chunk {i}", f"document {i // 2}", 1 / (1 + i)) for i in range(6 * MOST_NAMED)]
"""All chunks of a collection, best first, two of each document."""
LIMIT = 50


class Requests:
    """An index that notes what it is asked for."""

    def __init__(self) -> None:
        self.named: list[int] = []
        self.wanted: list[int] = []

    def search(self, limit: int, document_ids: DocumentIds | None) -> list[Hit]:
        self.named.append(0 if document_ids is None else len(document_ids))
        self.wanted.append(limit)
        return [hit for hit in HITS if document_ids is None or hit.document_id in document_ids][:limit]


def documents(*hits: Hit) -> DocumentIds:
    return frozenset(hit.document_id for hit in hits)


CHOICES = [
    documents(*HITS), documents(*HITS[20:]), documents(*HITS[WIDER[-1] * LIMIT :]), documents(*HITS[-2 * MOST_NAMED - 2 :]),
    *(documents(*random.Random(seed).sample(HITS, 2 * MOST_NAMED)) for seed in range(3)), documents(*HITS[:5], *HITS[-3 * MOST_NAMED :]),
]  # fmt: skip


def test_the_hits_are_the_same_and_requests_are_bounded(subtests: pytest.Subtests):
    for number, chosen in enumerate(CHOICES):
        for limit in [1, LIMIT, 7 * MOST_NAMED]:
            with subtests.test(chosen=number, limit=limit):
                requests = Requests()

                assert best_among(requests.search, limit, chosen) == Requests().search(limit, chosen)
                assert max(requests.named) <= MOST_NAMED
                assert len(requests.named) <= len(WIDER) + len(chosen) // MOST_NAMED + 1
                assert max(requests.wanted) <= WIDER[-1] * limit


def test_most_of_a_collection_needs_no_names():
    requests = Requests()
    best_among(requests.search, LIMIT, documents(*HITS[20:]))

    assert requests.named == [0]


def test_a_list_that_has_no_more_is_not_asked_for_more():
    requests = Requests()
    found = best_among(requests.search, len(HITS), documents(*HITS[:10]))

    assert (len(found), requests.named) == (10, [0])


def test_what_both_lists_like_comes_first():
    first, second, third = HITS[:3]

    assert [(hit.chunk_id, hit.document_id) for hit in fused_hits([[first, second], [second, third]])] == [
        (hit.chunk_id, hit.document_id) for hit in (second, first, third)
    ]
