"""Reads one page of a list by the columns that order it: after a position, or on either side of an item."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVarTuple

from sqlalchemy import ColumnElement, Row, Select, tuple_
from sqlalchemy.orm import Session

from ragkv.page import Page, PageRequest

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
        place, start = tuple_(*keys), tuple_(*position)
        listed = listed.where(place < start if descending else place > start)
    ordered = listed.order_by(*(key.desc() if descending else key.asc() for key in keys))
    rows = list(session.execute(ordered.limit(limit + 1)))
    return Page(rows[:limit], more=len(rows) > limit)


def rows_of(
    session: Session, listed: Select[*Columns], keys: Keys, page: PageRequest, place_of: Callable[[str], Position]
) -> Page[Row[*Columns]]:
    """The rows of one page. `place_of` gives the position of an item by its id, or raises NotFound."""
    anchor = page.before if page.backwards else page.after
    position = page.position or (None if anchor is None else place_of(anchor))
    descending = page.newest_first != page.backwards
    found = rows_behind(session, listed, keys, page.limit, position, descending=descending)
    return Page(found.items[::-1], found.more) if page.backwards else found
