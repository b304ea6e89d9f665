"""Search among more documents than one request may list: the same hits, in requests of bounded size."""

from collections.abc import Callable, Sequence

from ragkv.batched import batched
from ragkv.retrieve.fusion import fused
from ragkv.retrieve.index import DocumentIds, Hit

MOST_NAMED = 2000
"""Documents that one request names: 70 kB of ids."""
WIDER = (4, 40)
"""Searches that name none ask for so many times the hits that are wanted, one after the other."""

Search = Callable[[int, DocumentIds | None], list[Hit]]
"""The best hits of one kind of search, up to a limit, of these documents or of all."""


def best_among(search: Search, limit: int, document_ids: DocumentIds) -> list[Hit]:
    """The best `limit` hits of documents that are too many to be named at once.

    Most of a collection's documents are among its best hits, too: those of all documents are looked through first.
    Where that does not find enough, the documents are named in as many requests as it takes.
    """
    for factor in WIDER:
        found = search(factor * limit, None)
        kept = [hit for hit in found if hit.document_id in document_ids]
        if len(kept) >= limit or len(found) < factor * limit:
            return kept[:limit]
    named = sorted(document_ids)
    portions = [frozenset(some) for some in batched(named, MOST_NAMED)]
    return sorted((hit for some in portions for hit in search(limit, some)), key=lambda hit: -hit.score)[:limit]


def fused_hits(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion of several lists of hits."""
    document_of = {hit.chunk_id: hit.document_id for hits in lists for hit in hits}
    orders = ([hit.chunk_id for hit in hits] for hits in lists)
    return [Hit(chunk_id, document_of[chunk_id], score) for chunk_id, score in fused(orders)]
