"""BM25 over arrays: for each term the chunks it occurs in, and how much it weighs there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragkv.retrieve.sparse import SparseVector


class Postings:
    """An inverted index of fixed content. Safe to share between threads."""

    def __init__(self, chunks: Sequence[SparseVector]) -> None:
        """`chunks`: the term weights of each chunk, without inverse document frequency."""
        self._num_chunks = len(chunks)
        terms = np.concatenate([indices for indices, _ in chunks])
        weights = np.concatenate([values for _, values in chunks])
        owners = np.repeat(np.arange(len(chunks)), [len(indices) for indices, _ in chunks])
        by_term = np.argsort(terms, kind="stable")
        # terms[i] occurs in chunks[bounds[i]:bounds[i + 1]]
        self._terms, starts = np.unique(terms[by_term], return_index=True)
        self._bounds = np.append(starts, len(terms))
        self._chunks = owners[by_term]
        self._weights = weights[by_term]

    def scores(self, query: SparseVector) -> NDArray[np.float32]:
        """[chunks] float32: the sum over the query's terms of its weight, the chunk's weight and the term's rarity.

        Rarity is ln(1 + (N - n + 0.5) / (n + 0.5)) for a term in n of N chunks, as in Qdrant.
        """
        scores = np.zeros(self._num_chunks, np.float32)
        for term, weight in zip(*query, strict=True):
            at = int(np.searchsorted(self._terms, term))
            if at == len(self._terms) or self._terms[at] != term:
                continue
            span = slice(int(self._bounds[at]), int(self._bounds[at + 1]))
            occurs_in = span.stop - span.start
            rarity = np.log1p((self._num_chunks - occurs_in + 0.5) / (occurs_in + 0.5))
            scores[self._chunks[span]] += np.float32(weight * rarity) * self._weights[span]
        return scores
