"""Leases: one owner holds a row until a time on the database's clock; after that it is free again."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Update, or_
from sqlalchemy.orm import InstrumentedAttribute, Session

RELEASED: dict[str, Any] = {"lease_owner": None, "lease_until": None}


def is_free(until: InstrumentedAttribute[datetime | None], moment: datetime) -> ColumnElement[bool]:
    """Whether the row is not held. until: when its lease ends."""
    return or_(until.is_(None), until < moment)


def num_changed(session: Session, statement: Update) -> int:
    """Execute a change of rows by their lease; the number of rows that it found. Objects of the session are not
    updated."""
    result = session.execute(statement, execution_options={"synchronize_session": False})
    return int(result.rowcount)  # type: ignore[attr-defined]
