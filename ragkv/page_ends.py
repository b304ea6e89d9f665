"""End positions of list pages, kept for a while, so that a list can continue from an item that has been deleted."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from ragkv.errors import NotFound, Unavailable
from ragkv.ids import is_id
from ragkv.page import Id, Moment, Page, PageRequest, from_cursor, to_cursor
from ragkv.redis_client import reporting

if TYPE_CHECKING:
    import redis

KEPT_S = 60 * 60

T = TypeVar("T")


class PageEnds:
    """Kept in Redis: (owner of a list, id of a page's last item) -> its position. While Redis is away none is kept."""

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client

    def read(
        self,
        owner_id: str,
        page: PageRequest,
        read: Callable[[PageRequest], Page[T]],
        position_of: Callable[[T], tuple[datetime, str]],
    ) -> Page[T]:
        """A page, and its end kept. It begins at a kept end where `read` raises NotFound for the item.

        owner_id: a tenant or a collection, in whose lists an item has one position.
        """
        try:
            found = read(page)
        except NotFound:
            if (position := self._position(owner_id, page.after or page.before or "")) is None:
                raise
            found = read(replace(page, position=position))
        if found.more:
            self._keep(owner_id, position_of(found.items[0 if page.backwards else -1]))
        return found

    def _keep(self, owner_id: str, position: tuple[datetime, str]) -> None:
        with suppress(Unavailable), reporting():
            self._client.set(_place(owner_id, position[1]), to_cursor(position), ex=KEPT_S)

    def _position(self, owner_id: str, item_id: str) -> tuple[datetime, str] | None:
        """The end that was kept, if there is one. Raises Unavailable."""
        if not is_id(item_id):
            return None
        with reporting():
            found = self._client.get(_place(owner_id, item_id))
        return from_cursor(found.decode(), tuple[Moment, Id]) if isinstance(found, bytes) else None


def _place(owner_id: str, item_id: str) -> str:
    return f"ragkv:page-end:{owner_id}:{item_id}"
