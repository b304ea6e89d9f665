"""The signs of vectors: a first pass over many vectors that reads a thirty-second of their bytes."""

import numpy as np
from numpy.typing import NDArray

WORD = 64
"""Signs in one number."""
WEIGHT_BITS = 3
"""A fourth finds no more."""


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
        differing = self._differing(query)
        if shown is not None:
            differing[~shown] = _HIDDEN
        rows_up_to = np.cumsum(np.bincount(differing, minlength=1))
        return np.flatnonzero(differing <= min(int(np.searchsorted(rows_up_to, count)), _HIDDEN - 1))

    def _differing(self, query: NDArray[np.float32]) -> NDArray[np.uint16]:
        """For each row the sum of the query's weights in the places where the signs differ."""
        most = (1 << WEIGHT_BITS) - 1
        weights = np.rint(np.abs(query) * (most / max(float(np.abs(query).max()), 1e-30))).astype(np.uint8)
        signs, *planes = _packed(np.stack([query > 0, *((weights >> bit) & 1 for bit in range(WEIGHT_BITS))]))
        differing = np.zeros(self._words.shape[1], np.uint16)
        for plane in reversed(planes):  # the highest bit of the weights first
            differing <<= 1
            for words, word, counted in zip(self._words, signs, plane, strict=True):
                differing += np.bitwise_count((words ^ word) & counted)
        return differing


_HIDDEN = int(np.iinfo(np.uint16).max)
"""More than any row of less than nine thousand numbers differs."""


def _packed(bits: NDArray[np.generic]) -> NDArray[np.uint64]:
    """[rows, words]."""
    missing = -bits.shape[1] % WORD
    return np.packbits(np.pad(bits.astype(np.bool_), ((0, 0), (0, missing))), axis=1).view(np.uint64)
