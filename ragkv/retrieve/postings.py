"""BM25 over arrays: for each term, the rows that it occurs in and its weight there."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ragkv.retrieve.sparse import SparseVector


class Entries(NamedTuple):
    """Terms of rows, one entry for each term of each row, in any order."""

    terms: NDArray[np.uint32]
    rows: NDArray[np.int32]
    weights: NDArray[np.float32]


class Postings:
    """An inverted index of fixed content. Safe to share between threads."""

    def __init__(self, entries: Entries) -> None:
        by_term = np.argsort(entries.terms, kind="stable")
        # terms[i] occurs in rows[bounds[i]:bounds[i + 1]]
        self._terms, starts = np.unique(entries.terms[by_term], return_index=True)
        self._bounds = np.append(starts, len(by_term))
        self._rows = entries.rows[by_term]
        self._weights = entries.weights[by_term]

    @classmethod
    def of(cls, chunks: Sequence[SparseVector]) -> Self:
        """`chunks`: the term weights of each row, without inverse document frequency."""
        terms = np.concatenate([indices for indices, _ in chunks])
        weights = np.concatenate([values for _, values in chunks])
        rows = np.repeat(np.arange(len(chunks), dtype=np.int32), [len(indices) for indices, _ in chunks])
        return cls(Entries(terms, rows, weights))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Self, NDArray[np.int32]]]) -> Self:
        """Several in one. Each comes with the new numbers of its rows; those below zero are left out."""
        entries = [postings.renumbered(numbers) for postings, numbers in parts]
        return cls(Entries(*(np.concatenate(column) for column in zip(*entries, strict=True))))

    def occurrences(self, term: np.uint32, shown: NDArray[np.bool_] | None) -> int:
        """Rows with this term, of those that are shown."""
        span = self._span(term)
        return span.stop - span.start if shown is None else int(np.count_nonzero(shown[self._rows[span]]))

    def add(self, scores: NDArray[np.float32], term: np.uint32, weight: np.float32) -> None:
        """Add to the score of each row with the term: `weight` times the term's weight there."""
        span = self._span(term)
        np.add.at(scores, self._rows[span], weight * self._weights[span])

    def _span(self, term: np.uint32) -> slice:
        at = int(np.searchsorted(self._terms, term))
        occurs = at < len(self._terms) and self._terms[at] == term
        return slice(int(self._bounds[at]), int(self._bounds[at + 1])) if occurs else slice(0, 0)

    def renumbered(self, numbers: NDArray[np.int32]) -> Entries:
        """All entries with other numbers for the rows; those below zero are left out."""
        rows = numbers[self._rows]
        visible = rows >= 0
        terms = np.repeat(self._terms, np.diff(self._bounds))
        return Entries(terms[visible], rows[visible], self._weights[visible])
