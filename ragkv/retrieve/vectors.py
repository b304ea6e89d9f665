"""Vectors of a text, and a chunk's entry in the index."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
