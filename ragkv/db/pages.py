"""Statements that read one page of a list: by moment and id, in either direction from an item."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Row, Select, tuple_
from sqlalchemy.orm import Session

from ragkv.page import Page, PageRequest

Position = tuple[datetime, str]
Keys = tuple[ColumnElement[datetime], ColumnElement[str]]
"""What a list is ordered by: a moment and, among equals, an id."""
Columns = TypeVarTuple("Columns")


def rows_of(
    session: Session, listed: Select[*Columns], keys: Keys, page: PageRequest, place_of: Callable[[str], Position]
) -> Page[Row[*Columns]]:
    """The rows of one page. `place_of` gives the position of an item by its id, or raises NotFound."""
    anchor = page.before if page.backwards else page.after
    position = None if anchor is None else place_of(anchor)
    falling = page.newest_first != page.backwards
    rows = list(session.execute(_part(listed, keys, page.limit + 1, position, falling)))
    found = rows[: page.limit]
    return Page(found[::-1] if page.backwards else found, more=len(rows) > page.limit)


def _part(listed: Select[*Columns], keys: Keys, limit: int, start: Position | None, falling: bool) -> Select[*Columns]:
    place = tuple_(*keys)
    if start is not None:
        listed = listed.where(place < tuple_(*start) if falling else place > tuple_(*start))
    return listed.order_by(*(key.desc() if falling else key.asc() for key in keys)).limit(limit)
