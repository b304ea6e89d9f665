"""Interface of a search index, in this process's memory or on a Qdrant server; its entries, hits and their fusion."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragkv.retrieve.sparse import SparseVector

DEPTH = 50
"""Candidates that each of the two searches hands to the fusion."""

FUSION_CONSTANT = 2
"""Reciprocal rank fusion, with Qdrant's constant: rank r, from 0, counts 1 / (FUSION_CONSTANT + r)."""

SearchMode = Literal["hybrid", "dense", "sparse"]

DocumentIds = frozenset[str]

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Vectors:
    """`dense`: [dim] float32 of unit length. `indices`, `values`: sparse BM25 term weights, IDF left to the index."""

    dense: NDArray[np.float32]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Point:
    """One chunk's entry in the index."""

    chunk_id: str
    document_id: str
    title: str
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found. Scores order the hits of one search and mean nothing across searches or modes."""

    chunk_id: str
    document_id: str
    score: float


class Held(NamedTuple):
    """A document that has points, and the collection whose searches find them."""

    tenant_id: str
    collection_id: str
    document_id: str


class Index(Protocol):
    """Vectors of chunks by tenant and collection. Safe to share between threads.

    Every method raises Unavailable when the index is away or refuses. Term rarity (IDF) is counted over the collection
    that is searched, so that no tenant's text moves another's ranking.
    """

    def close(self) -> None: ...

    def ensure(self, dim: int) -> None:
        """Make the index ready for dense vectors of `dim` numbers; does nothing the second time.

        Raises Rejected when it already holds vectors of another length, as after a change of encoder.
        """
        ...

    def upsert(self, tenant_id: str, collection_id: str, points: Sequence[Point]) -> None:
        """Add points, replacing those of the same chunks. Searchable on return."""
        ...

    def replace(self, tenant_id: str, collection_id: str, document_ids: Sequence[str], points: Sequence[Point]) -> None:
        """Put these points in place of all that the documents have in the collection. A search meanwhile finds each
        document by its earlier points or by its new ones. An empty dense vector is never near a question."""
        ...

    def delete_from_collection(self, tenant_id: str, collection_id: str, document_ids: Sequence[str]) -> None:
        """Forget the points of several documents of one collection."""
        ...

    def delete_collection(self, tenant_id: str, collection_id: str) -> None:
        """Forget all points of a tenant's collection."""
        ...

    def search(
        self,
        tenant_id: str,
        collection_id: str,
        vectors: Vectors,
        limit: int,
        mode: SearchMode = "hybrid",
        document_ids: DocumentIds | None = None,
    ) -> list[Hit]:
        """The best `limit` chunks of a collection, best first; none when there is no such collection.

        With `document_ids` only chunks of these documents are found.

        hybrid: the best DEPTH of each kind of search, or `limit` of them if that is more, fused by reciprocal rank with
        Qdrant's constant: 1 / (2 + rank) from 0 (Cormack, Clarke and Büttcher, SIGIR 2009). A question without a single
        term is searched by its dense vector alone.
        """
        ...

    def holders(
        self,
        tenant_id: str,
        collection_id: str,
        terms: SparseVector,
        limit: int,
        document_ids: DocumentIds | None = None,
    ) -> list[list[Hit]]:
        """For each term the chunks that have it, scored by BM25; none for a term that more than `limit` chunks have.

        With `document_ids` only chunks of these documents count.
        """
        ...

    def dense_of(
        self, tenant_id: str, collection_id: str, chunk_ids: Sequence[str]
    ) -> Mapping[str, NDArray[np.float32]]:
        """Dense vectors, [dim] float32 of unit length each, of those chunks that the collection holds."""
        ...


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
