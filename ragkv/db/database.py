"""The database: SQLite embedded, PostgreSQL by URL, behind one pair of verbs."""

import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from ragkv.errors import Rejected, Unavailable

BUSY_TIMEOUT_S = 30
_WRITES = "ragkv_writes"
_POSTGRES = ("postgresql", "postgres", "postgresql+pg8000")
_AWAY = (OperationalError, InterfaceError, PoolTimeout)


class Database:
    """Sessions that read and sessions that write. Both raise Unavailable when the database is away."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)
        self._writing = self.engine.execution_options(**{_WRITES: True})

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A consistent view. What is changed in it is lost."""
        with _translated(), Session(self.engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction: committed on the way out, rolled back by an exception."""
        with _translated(), Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    def ping(self) -> None:
        """Raises Unavailable unless the database answers."""
        with self.reading() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        self.engine.dispose()


def hold(session: Session, name: str) -> None:
    """Until this transaction ends, no other that holds `name` goes on. SQLite runs one writer at a time anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


def open_engine(url: str) -> Engine:
    """An engine for a SQLite or PostgreSQL URL; a missing SQLite folder is made. Raises Rejected for any other URL."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise Rejected("RAGKV_DATABASE_URL is not a database URL: sqlite:///path or postgresql://...") from None
    if parsed.drivername == "sqlite":
        return _open_sqlite(parsed)
    if parsed.drivername in _POSTGRES:
        return _open_postgres(parsed)
    raise Rejected(f"RAGKV_DATABASE_URL: {parsed.drivername} is not supported; use sqlite:/// or postgresql://")


def _open_sqlite(url: URL) -> Engine:
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver would begin too late for _begin_sqlite to choose the lock
    for pragma in ("journal_mode = WAL", "foreign_keys = ON", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once, without waiting, when another wrote in between:
    # writers take the lock when they begin.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _open_postgres(url: URL) -> Engine:
    query = dict(url.query)
    connect_args: dict[str, Any] = {"timeout": 10, "tcp_keepalive": True}
    if folder := query.pop("host", None):
        query["unix_sock"] = f"{folder}/.s.PGSQL.{url.port or 5432}"
    connect_args["ssl_context"] = _ssl_context(str(query.pop("sslmode", "disable")))
    url = url.set(drivername="postgresql+pg8000", query=query)
    return create_engine(url, connect_args=connect_args, pool_pre_ping=True, pool_size=10, pool_timeout=30)


def _ssl_context(mode: str) -> ssl.SSLContext | None:
    """libpq's sslmode, for a driver that does not know it."""
    if mode in ("disable", "allow", "prefer"):
        return None
    context = ssl.create_default_context()
    if mode == "require":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif mode == "verify-ca":
        context.check_hostname = False
    elif mode != "verify-full":
        raise Rejected(f"RAGKV_DATABASE_URL: sslmode={mode} is not known")
    return context


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _AWAY as error:
        raise Unavailable(f"the database is away: {_reason(error)}") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise Unavailable(f"the database went away: {_reason(error)}") from error
        raise


def _reason(error: Exception) -> str:
    return str(error.orig if isinstance(error, DBAPIError) else error).splitlines()[0]
