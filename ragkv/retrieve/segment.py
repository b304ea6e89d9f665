"""A segment of the index: some chunks of a collection, laid out for searching by dense vectors and by BM25."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ragkv.retrieve.index import DocumentIds, Point
from ragkv.retrieve.sparse import SparseVector

SIGNED_ROWS = 1 << 14
"""A segment of fewer rows has no signs: it is read whole in a millisecond or two."""
SIGNED_DIM = 256
"""Signs of shorter vectors say too little of where they point."""
CANDIDATES = 1000
"""Rows of a segment that signs choose, or `OVERSAMPLING` times those that are wanted if that is more. These are
read."""
OVERSAMPLING = 20
READ_ROWS = 4096
"""A filter that leaves a segment no more rows needs no signs."""
_WORD = 64
"""Signs in one number."""
_WEIGHT_BITS = 3
"""A fourth finds no more."""
_BLOCK = 64
_HIDDEN = int(np.iinfo(np.uint16).max)
"""More than any row of less than nine thousand numbers differs."""

Shown = NDArray[np.bool_]
"""For each row whether it may be found."""


class Entries(NamedTuple):
    """Terms of rows, one entry for each term of each row, in any order."""

    terms: NDArray[np.uint32]
    rows: NDArray[np.int32]
    weights: NDArray[np.float32]


class Postings:
    """An inverted index of fixed content: for each term, the rows that it occurs in and its weight there. Safe to share
    between threads."""

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

    def holders(
        self, term: np.uint32, shown: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The rows with this term, of those that are shown, and its weight in each."""
        span = self._span(term)
        rows, weights = self._rows[span], self._weights[span]
        return (rows, weights) if shown is None else (rows[shown[rows]], weights[shown[rows]])

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


class Best(NamedTuple):
    """Rows with their scores, best first."""

    rows: NDArray[np.intp]
    scores: NDArray[np.float32]


class Signs:
    """The signs of fixed rows, a bit for each number. Safe to share between threads.

    Two vectors whose signs agree in most places point the same way (Charikar, "Similarity estimation techniques from
    rounding algorithms", STOC 2002), the more so if each place counts for as much as the query's number there (Gao and
    Long, "RaBitQ", SIGMOD 2024). It takes some hundred numbers for that to say much.
    """

    def __init__(self, dense: NDArray[np.float32]) -> None:
        """dense: [rows, dim]."""
        self._words = np.ascontiguousarray(_packed(dense > 0).T)  # [words, rows]: one word of all rows at a time

    def nearest(self, query: NDArray[np.float32], count: int, shown: NDArray[np.bool_] | None) -> NDArray[np.intp]:
        """The `count` rows whose signs differ least from the query's, and those that differ as little as the last of
        them; ascending. Of those that are shown; None for all rows."""
        most = (1 << _WEIGHT_BITS) - 1
        weights = np.rint(np.abs(query) * (most / max(float(np.abs(query).max()), 1e-30))).astype(np.uint8)
        signs, *planes = _packed(np.stack([query > 0, *((weights >> bit) & 1 for bit in range(_WEIGHT_BITS))]))
        # For each row the sum of the query's weights in the places where the signs differ. A plane holds one bit of all
        # weights: of the signs that differ, those in the plane count. Doubling the sum before the next lower bit gives
        # every bit its value.
        differing = np.zeros(self._words.shape[1], np.uint16)
        for plane in reversed(planes):  # the highest bit of the weights first
            differing <<= 1
            for words, word, counted in zip(self._words, signs, plane, strict=True):
                differing += np.bitwise_count((words ^ word) & counted)
        if shown is not None:
            differing[~shown] = _HIDDEN
        # How many rows differ by at most 0, 1, 2, ...: the first number that reaches `count` is the limit.
        rows_up_to = np.cumsum(np.bincount(differing, minlength=1))
        return np.flatnonzero(differing <= min(int(np.searchsorted(rows_up_to, count)), _HIDDEN - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Chunks, a row each, in order of their ids. The rows are fixed; a copy may show fewer of them.

    document_ids: each once. number_of: their places there. owners: for each row that of its document. shown: None for
    all rows.
    """

    chunk_ids: Sequence[str]
    row_of: Mapping[str, int]
    document_ids: Sequence[str]
    number_of: Mapping[str, int]
    owners: NDArray[np.int32]
    dense: NDArray[np.float32]
    signs: Signs | None
    postings: Postings
    shown: Shown | None = None

    @classmethod
    def of(cls, points: Sequence[Point]) -> Self:
        """A segment of at least one point, each of another chunk."""
        points = sorted(points, key=lambda point: point.chunk_id)
        return cls._laid_out(
            [point.chunk_id for point in points],
            [point.document_id for point in points],
            np.stack([point.vectors.dense for point in points]),
            Postings.of([(point.vectors.indices, point.vectors.values) for point in points]),
        )

    @classmethod
    def joined(cls, segments: Sequence[Self]) -> Self:
        """One segment with the rows that several show: at least one row."""
        rows_of = [segment.rows() for segment in segments]
        ids = [segment.ids(row) for segment, rows in zip(segments, rows_of, strict=True) for row in rows.tolist()]
        # Rows are numbered anew in order of chunk ids, as in `of`. `numbers`: for each segment the new number of each
        # of its rows, -1 for those that it does not show.
        order = sorted(range(len(ids)), key=ids.__getitem__)
        new_rows = np.empty(len(ids), np.int32)
        new_rows[order] = np.arange(len(ids), dtype=np.int32)
        dense = np.empty((len(ids), segments[0].dense.shape[1]), np.float32)
        numbers, offset = [], 0
        for segment, rows in zip(segments, rows_of, strict=True):
            to = new_rows[offset : offset + len(rows)]
            dense[to] = segment.dense[rows]
            numbers.append(np.full(len(segment.chunk_ids), -1, np.int32))
            numbers[-1][rows] = to
            offset += len(rows)
        return cls._laid_out(
            [ids[i][0] for i in order],
            [ids[i][1] for i in order],
            dense,
            Postings.joined([(segment.postings, n) for segment, n in zip(segments, numbers, strict=True)]),
        )

    @classmethod
    def _laid_out(
        cls, chunk_ids: Sequence[str], owned_by: Sequence[str], dense: NDArray[np.float32], postings: Postings
    ) -> Self:
        documents = list(dict.fromkeys(owned_by))
        number_of = {document_id: number for number, document_id in enumerate(documents)}
        owners = np.fromiter((number_of[i] for i in owned_by), np.int32, len(owned_by))
        row_of = {chunk_id: row for row, chunk_id in enumerate(chunk_ids)}
        signed = dense.shape[0] >= SIGNED_ROWS and dense.shape[1] >= SIGNED_DIM
        return cls(chunk_ids, row_of, documents, number_of, owners, dense, Signs(dense) if signed else None, postings)

    @property
    def num_shown(self) -> int:
        return len(self.chunk_ids) if self.shown is None else int(np.count_nonzero(self.shown))

    def ids(self, row: int) -> tuple[str, str]:
        """The chunk and the document of a row."""
        return self.chunk_ids[row], self.document_ids[self.owners[row]]

    def rows(self) -> NDArray[np.intp]:
        """The rows that are shown."""
        return np.arange(len(self.chunk_ids)) if self.shown is None else np.flatnonzero(self.shown)

    def within(self, document_ids: DocumentIds | None) -> Shown | None:
        """The rows that are shown of these documents; None for all rows."""
        if document_ids is None:
            return self.shown
        of_documents = self._of_documents(document_ids)
        return of_documents if self.shown is None else of_documents & self.shown

    def _of_documents(self, document_ids: DocumentIds) -> Shown:
        allowed = np.zeros(len(self.document_ids), np.bool_)
        allowed[[self.number_of[i] for i in self.number_of.keys() & document_ids]] = True
        return allowed[self.owners]

    def without(self, document_ids: DocumentIds, chunk_ids: AbstractSet[str]) -> Self:
        """The same rows, those of these documents and of these chunks not shown."""
        rows = [self.row_of[i] for i in self.row_of.keys() & chunk_ids]
        if not rows and not self.number_of.keys() & document_ids:
            return self
        hidden = self._of_documents(document_ids)
        hidden[rows] = True
        return replace(self, shown=~hidden if self.shown is None else self.shown & ~hidden)

    def dense_of(self, chunk_id: str) -> NDArray[np.float32] | None:
        """The dense vector of a chunk that is shown."""
        row = self.row_of.get(chunk_id)
        return None if row is None or not (self.shown is None or self.shown[row]) else self.dense[row]

    def nearest(self, query: NDArray[np.float32], limit: int, shown: Shown | None, *, by_signs: bool) -> Best:
        """The rows whose vectors are nearest to the query. by_signs: of those that their signs choose, where it has
        them."""
        if by_signs and self.signs is not None and (shown is None or np.count_nonzero(shown) > READ_ROWS):
            rows = self.signs.nearest(query, max(CANDIDATES, OVERSAMPLING * limit), shown)
        elif shown is not None:
            rows = np.flatnonzero(shown)
        else:
            return self._compared(best(self.dense @ query, limit).rows, query)
        return self._compared(rows[best(self.dense[rows] @ query, limit).rows], query)

    def _compared(self, rows: NDArray[np.intp], query: NDArray[np.float32]) -> Best:
        """Rows by their scores, one product a row: last digits of a matrix product differ with a row's place."""
        rows = np.sort(rows)
        scores = np.vecdot(self.dense[rows], query)
        order = np.argsort(-scores, kind="stable")
        return Best(rows[order], scores[order])

    def matching(
        self, terms: NDArray[np.uint32], weights: NDArray[np.float32], limit: int, shown: Shown | None
    ) -> Best:
        """The rows that have any of the terms, by the sum of those that they have."""
        scores = np.zeros(len(self.chunk_ids), np.float32)
        for term, weight in zip(terms, weights, strict=True):
            self.postings.add(scores, term, weight)
        if shown is not None:
            scores[~shown] = 0
        ranked = best(scores, limit)
        matching = ranked.scores > 0
        return Best(ranked.rows[matching], ranked.scores[matching])


def best(scores: NDArray[np.float32], limit: int) -> Best:
    """The rows with the highest scores; equal ones in order of rows."""
    rows = np.arange(len(scores))
    if len(scores) > _BLOCK * limit:
        # The best of `limit` blocks are `limit` rows: the rows sought score as much as the least of them.
        of_blocks = np.maximum.reduceat(scores, np.arange(0, len(scores), _BLOCK))
        rows = np.flatnonzero(scores >= -np.partition(-of_blocks, limit - 1)[limit - 1])
    rows = rows[np.argsort(-scores[rows], kind="stable")][:limit]
    return Best(rows, scores[rows])


def _packed(bits: NDArray[np.generic]) -> NDArray[np.uint64]:
    """[rows, words]."""
    missing = -bits.shape[1] % _WORD
    return np.packbits(np.pad(bits.astype(np.bool_), ((0, 0), (0, missing))), axis=1).view(np.uint64)
