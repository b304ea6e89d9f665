"""Sequences in batches."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

BATCH = 500
"""Ids in one statement of the database, rows in one transaction."""


def batched(items: Sequence[T], size: int = BATCH) -> Iterator[Sequence[T]]:
    """The items in order, `size` at a time; the last batch may be shorter."""
    return (items[start : start + size] for start in range(0, len(items), size))
