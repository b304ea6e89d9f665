"""Pages of long lists: the request, the response, the cursors between pages, the rows of one page, and the views that
users see of them.

A page begins at the id of an item (`PageRequest`) or at a cursor, which is opaque to clients and made and read here.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Protocol, TypeVar, TypeVarTuple, cast

import msgspec
from msgspec import Meta
from sqlalchemy import ColumnElement, Row, Select, tuple_
from sqlalchemy.orm import Session

from ragkv.errors import NotFound, Rejected
from ragkv.ids import is_id
from ragkv.service.base.database import Database

MAX_PAGE = 200

Moment = Annotated[datetime, Meta(tz=True)]
Id = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Ordinal = Annotated[int, Meta(ge=0, lt=2**31)]
Name = Annotated[str, Meta(max_length=200)]

T = TypeVar("T")
View = TypeVar("View", bound=msgspec.Struct)
T_co = TypeVar("T_co", covariant=True)

Position = tuple[datetime, str]
Keys = tuple[ColumnElement[datetime], ColumnElement[str]]
"""The order of most lists: by a moment and, among equals, by an id."""
Columns = TypeVarTuple("Columns")


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
    """The items of a page in the order of the list. `more`:
    the list goes on beyond them, in the direction of reading."""

    items: list[T]
    more: bool

    def next(self, position_of: Callable[[T], object]) -> str | None:
        """The cursor of the next page, made of the position of the last item; None after the last page."""
        return to_cursor(position_of(self.items[-1])) if self.more else None


class Listed(Protocol[T_co]):
    """A page as it is returned: `next` is the cursor of the one behind it."""

    @property
    def items(self) -> Sequence[T_co]: ...
    @property
    def next(self) -> str | None: ...


def all_pages(page_at: Callable[[str | None], Listed[T]]) -> Iterator[T]:
    """The items of a list from its first page to its last, each page read by its cursor when it is its turn."""
    cursor: str | None = None
    while True:
        page = page_at(cursor)
        yield from page.items
        if (cursor := page.next) is None:
            return


def to_cursor(position: object) -> str:
    """The cursor of the page that begins behind a position."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def from_cursor(cursor: str | None, kind: type[T]) -> T | None:
    """The position a cursor was made from, its moments in UTC; None without a cursor. Raises Rejected for any other
    text."""
    if cursor is None:
        return None
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        position = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=kind)
        if not isinstance(position, tuple):
            return position
        in_utc = tuple(value.astimezone(UTC) if isinstance(value, datetime) else value for value in position)
    except (binascii.Error, ValueError, OverflowError, msgspec.MsgspecError):
        raise Rejected("invalid cursor: use `next` of the previous page, or omit it for the first page") from None
    return cast("T", in_utc)


def rows_behind(
    session: Session,
    listed: Select[*Columns],
    keys: Sequence[ColumnElement[Any]],
    limit: int,
    position: Sequence[object] | None,
    *,
    descending: bool = False,
) -> Page[Row[*Columns]]:
    """The first rows of a list that is ordered by `keys`, or the first behind a position: a value for each key."""
    if position is not None:
        key, start = tuple_(*keys), tuple_(*position)
        listed = listed.where(key < start if descending else key > start)
    ordered = listed.order_by(*(key.desc() if descending else key.asc() for key in keys))
    rows = list(session.execute(ordered.limit(limit + 1)))
    return Page(rows[:limit], more=len(rows) > limit)


def newest_first(
    database: Database, listed: Select[T, *Columns], keys: Keys, limit: int, cursor: str | None
) -> tuple[list[Row[T, *Columns]], str | None]:
    """(rows of a page, the cursor of the next one), the newest first. keys: columns of the first object in each row.
    Raises Rejected for an invalid cursor."""
    position = from_cursor(cursor, tuple[Moment, Id])
    with database.reading() as session:
        rows = rows_behind(session, listed, keys, limit, position, descending=True)
    return rows.items, rows.next(lambda row: [getattr(row[0], str(key.key)) for key in keys])


def row_by_id(session: Session, statement: Select[*Columns], row_id: str, absence: str) -> Row[*Columns]:
    """The only row of a statement about an id. Raises NotFound, with the absence in words, also for what is no id."""
    row = session.execute(statement).one_or_none() if is_id(row_id) else None
    if row is None:
        raise NotFound(f"{absence} {row_id[:80]!r}")
    return row


def rows_of(
    session: Session, listed: Select[*Columns], keys: Keys, page: PageRequest, position_of: Callable[[str], Position]
) -> Page[Row[*Columns]]:
    """The rows of one page. Raises NotFound if the item to begin at does not exist.

    position_of: gives the position of an item by its id, or raises NotFound.
    """
    anchor = page.before if page.backwards else page.after
    try:
        position = None if anchor is None else position_of(anchor)
    except NotFound as error:
        raise NotFound(f"{error}: it may have been deleted, so read the list from its start") from error
    descending = page.newest_first != page.backwards
    rows = rows_behind(session, listed, keys, page.limit, position, descending=descending)
    return Page(rows.items[::-1], rows.more) if page.backwards else rows


def view_from(kind: type[View], source: object, **fields: Any) -> View:
    """A view with these fields. All others are the source's attributes of the same names."""
    same = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in fields}
    return kind(**same, **fields)
