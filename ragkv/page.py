"""One page of a long list: what is asked for and what is returned."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """At most `limit` items: the first of the list, or those just after or just before the item with an id."""

    limit: int = 20
    newest_first: bool = True
    after: str | None = None
    before: str | None = None

    @property
    def backwards(self) -> bool:
        """Whether it is read from its end: the items just before one."""
        return self.before is not None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """The items of a page in the order of the list. `more`: the list goes on beyond them, in the direction of reading."""

    items: list[T]
    more: bool
