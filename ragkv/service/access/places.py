"""Concurrency limits per owner, so that no owner can take all places."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ragkv.errors import Throttled

RETRY_AFTER_S = 2.0


class Places:
    """At most `limit` things of each owner at once, in this process; 0: no limit. For one thread alone.

    refusal: what an owner without a place left is told.
    """

    def __init__(self, limit: int, refusal: str) -> None:
        self._limit = limit
        self._refusal = refusal
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, owner: str) -> Iterator[None]:
        """One of the owner's places, for as long as the block lasts. Raises Throttled if there is none."""
        if self._limit and self._taken[owner] >= self._limit:
            raise Throttled(self._refusal, RETRY_AFTER_S)
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
