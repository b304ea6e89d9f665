"""A stretch of a long list, named by the id of what it follows or precedes."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stretch:
    """At most `limit` items, the first of the list, or those right after or right before an item."""

    limit: int = 20
    newest_first: bool = True
    after: str | None = None
    before: str | None = None

    @property
    def backwards(self) -> bool:
        """Whether it is read from its end: the items right before one."""
        return self.before is not None


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The items of a stretch in the list's order. `more`: there are others beyond it, the way it was read."""

    items: list[T]
    more: bool
