"""Ids that the service assigns, batches and runs of items, and the time of day."""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")


_ID = re.compile(r"[0-9a-f]{32}")


def new_id() -> str:
    return uuid.uuid4().hex


def is_id(text: str) -> bool:
    """Whether a text has the form of an id."""
    return _ID.fullmatch(text) is not None


BATCH = 500
"""Ids in one statement of the database, rows in one transaction."""


def batched(items: Sequence[T], size: int = BATCH) -> Iterator[Sequence[T]]:
    """The items in order, `size` at a time; the last batch may be shorter."""
    return (items[start : start + size] for start in range(0, len(items), size))


def runs(numbers: Iterable[int]) -> Iterator[range]:
    """Ascending numbers as ranges of consecutive ones."""
    for _, numbered in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in numbered]
        yield range(run[0], run[-1] + 1)


def utc_now() -> datetime:
    return datetime.now(UTC)
