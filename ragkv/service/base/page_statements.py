"""Reads one page of a list by the columns that order it: after a position, or on either side of an item."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVarTuple

from sqlalchemy import ColumnElement, Row, Select, tuple_
from sqlalchemy.orm import Session

from ragkv.errors import NotFound
from ragkv.service.base.page import Page, PageRequest

Position = tuple[datetime, str]
Keys = tuple[ColumnElement[datetime], ColumnElement[str]]
"""The order of most lists: by a moment and, among equals, by an id."""
Columns = TypeVarTuple("Columns")


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
