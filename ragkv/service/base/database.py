"""The database: SQLite embedded, PostgreSQL by URL, behind one pair of verbs; its clock, and leases by that clock.

A lease: one owner holds a row until a time; after that the row is free again.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

from sqlalchemy import ColumnElement, Delete, Engine, Row, Select, Update, func, make_url, or_, orm, select, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import InstrumentedAttribute

from ragkv.errors import Rejected
from ragkv.ids import batched, new_id, utc_now
from ragkv.service.base.failures import discarding, translated
from ragkv.service.base.postgres import BRIEF, READS, open_postgres, wait_in_silence
from ragkv.service.base.sqlite import WRITES, empty_write_ahead_log, open_sqlite

T = TypeVar("T")
Item = TypeVar("Item")
Columns = TypeVarTuple("Columns")
Session = orm.Session
"""The type of what `Database.reading` and `writing` give."""

BESIDE_NEW_ROWS = {"key_share": True}
"""How to lock a row for a change (`with_for_update`) that does not keep others from adding rows that refer to it."""
Condition = ColumnElement[bool]
"""A condition on rows."""
Change = Update | Delete
RELEASED: dict[str, Any] = {"lease_owner": None, "lease_until": None}
"""Columns of a row that no one holds."""
_POSTGRES = ("postgresql", "postgres", "postgresql+pg8000")


class Database:
    """Sessions that read and sessions that write, and statements that need no more than one of these. All raise
    Unavailable when the database is away.

    A connection that any exception but ours and the server's own errors went through is closed, not used again.
    """

    def __init__(self, place: str | Engine) -> None:
        self.engine = open_engine(place) if isinstance(place, str) else place
        self._reading = self.engine.execution_options(**{READS: True})
        self._writing = self.engine.execution_options(**{WRITES: True})

    @property
    def brief(self) -> "Database":
        """The same database for statements that take no time: a server that is silent is given up within seconds."""
        return Database(self.engine.execution_options(**{BRIEF: True}))

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A consistent view: all that is read in it is of one moment. What is changed in it is lost."""
        with translated(), Session(self._reading) as session, discarding(session):
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction: committed on the way out, rolled back by an exception."""
        with (
            translated(),
            Session(self._writing, expire_on_commit=False) as session,
            session.begin(),
            discarding(session),
        ):
            yield session

    def rows(self, statement: Select[*Columns]) -> Sequence[Row[*Columns]]:
        with self.reading() as session:
            return session.execute(statement).all()

    def rows_among(
        self, statement_of: Callable[[Sequence[Item]], Select[*Columns]], items: Sequence[Item]
    ) -> list[Row[*Columns]]:
        """The rows of a statement about any number of items, as of one moment: a batch of them at a time."""
        with self.reading() as session:
            return [row for batch in batched(items) for row in session.execute(statement_of(batch))]

    def row(self, statement: Select[*Columns]) -> Row[*Columns] | None:
        """The only row; None if there is none."""
        with self.reading() as session:
            return session.execute(statement).one_or_none()

    def scalars(self, statement: Select[T, *tuple[Any, ...]]) -> Sequence[T]:
        """The first value of every row."""
        with self.reading() as session:
            return session.scalars(statement).all()

    def scalar(self, statement: Select[T, *tuple[Any, ...]]) -> T | None:
        """The first value of the first row; None if there is none."""
        with self.reading() as session:
            return session.scalars(statement).first()

    def execute(self, *changes: Change) -> int:
        """Execute changes in one transaction. Returns the number of rows that they found."""
        with self.writing() as session:
            return sum(num_changed(session, change) for change in changes)

    def ping(self) -> None:
        """Check the connection. Raises Unavailable unless the database answers."""
        self.rows(select(1))

    def takes_changes(self) -> bool:
        """Whether rows can be written: not to a standby. Raises Unavailable."""
        if self.engine.dialect.name != "postgresql":
            return True
        with self.reading() as session:
            is_read_only = session.scalar(text("SHOW transaction_read_only")) == "on"
            if is_read_only:  # as after a statement that failed for it
                session.invalidate()
        return not is_read_only

    def empty_write_ahead_log(self) -> None:
        """Empty that of SQLite; that of PostgreSQL is the server's. Raises Unavailable."""
        if self.engine.dialect.name == "sqlite":
            empty_write_ahead_log(str(self.engine.url.database))

    def close(self) -> None:
        self.engine.dispose()


def advisory_lock(session: Session, name: str) -> None:
    """Hold a named lock until this transaction ends.
    On SQLite every writing transaction holds the one lock there is."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


def lift_time_limits(session: Session) -> None:
    """End the limits that guard requests, up to the end of this transaction: it may read or change whole tables, and do
    other work between two statements. That on waiting for locks stays."""
    if session.get_bind().dialect.name == "postgresql":
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            session.execute(text(f"SET LOCAL {limit} = 0"))
        wait_in_silence(session.connection())


def open_engine(url: str) -> Engine:
    """An engine for a SQLite or PostgreSQL URL; a missing SQLite folder is made. Raises Rejected for any other URL."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise Rejected("RAGKV_DATABASE_URL is not a database URL: use sqlite:///path or postgresql://...") from None
    if parsed.drivername == "sqlite":
        return open_sqlite(parsed)
    if parsed.drivername in _POSTGRES:
        return open_postgres(parsed)
    raise Rejected(f"RAGKV_DATABASE_URL: {parsed.drivername} is not supported; use sqlite:/// or postgresql://")


def now_of(session: Session) -> datetime:
    """The present moment by the database server's clock. A SQLite file is used on one machine,
    by that machine's clock."""
    if session.get_bind().dialect.name != "postgresql":
        return utc_now()
    moment: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return moment


def new_owner() -> str:
    """A name for one more owner of leases: the machine, the process and an id."""
    return f"{socket.gethostname()}:{os.getpid()}:{new_id()}"


def is_free(until: InstrumentedAttribute[datetime | None], moment: datetime) -> ColumnElement[bool]:
    """Whether the row is not held. until: when its lease ends."""
    return or_(until.is_(None), until < moment)


def has_come(
    at: InstrumentedAttribute[datetime] | InstrumentedAttribute[datetime | None],
    moment: datetime,
    longest_wait: timedelta,
) -> ColumnElement[bool]:
    """Whether the time for another try, or the end of a lease, has come. One that is further away than any wait was set
    by a clock that ran ahead and was put right since."""
    return or_(at.is_(None), at <= moment, at > moment + longest_wait)


def num_changed(session: Session, statement: Change) -> int:
    """Execute a change; the number of rows that it found. Objects of the session are not updated."""
    result = session.execute(statement, execution_options={"synchronize_session": False})
    return int(result.rowcount)  # type: ignore[attr-defined]
