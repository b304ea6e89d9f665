"""Database failures: whether the connection may be reused, and the error that callers see.

A driver that is interrupted between sending a statement and reading its replies leaves them in the connection, where
the next statement takes them for its own: another tenant's rows. So a connection stays only after an error that the
server itself reported, which the driver raises once it has read everything.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from ragkv.errors import RagKVError, Unavailable

AWAY = "the database does not answer: try again, or see the service's log"
TOO_SLOW = "the database took too long for this: try again, or ask for less at once"
READ_ONLY = "the database takes no changes at the moment: try again, or see the service's log"
BUSY = "the database is busy with another change: try again"

_SQL_ERROR, _SQLITE_BUSY = 1, (5, 6)
"""SQLite's codes for a statement that is wrong, which does not get better with time, and for locks."""
_OF_CODE = {_SQL_ERROR: None} | dict.fromkeys(_SQLITE_BUSY, BUSY)
_CANCELLED, _LOCK_TIMEOUT, _READ_ONLY = "57014", "55P03", "25006"
_BUSY = ("40001", "40P01", _LOCK_TIMEOUT)
_OF_STATE = {_CANCELLED: TOO_SLOW, _READ_ONLY: READ_ONLY} | dict.fromkeys(_BUSY, BUSY)
_AWAY = ("08", "28", "3D", "53", "57", "58")
"""Classes of SQLSTATE: connection, authorization, database name, resources, operator intervention, system."""

_DATA = "22"
"""The class of values that the server cannot read: its messages quote them."""
_CONSTRAINT = "23"
"""The class of constraints that would not hold."""

log = logging.getLogger(__name__)


def discard_broken(engine: Engine) -> None:
    """Close every connection of an engine whose statement ended with anything but an error of the server's."""
    event.listen(engine, "handle_error", _discard_broken)


@contextmanager
def discarding(session: Session) -> Iterator[None]:
    """Close the session's connection after any exception but ours and the server's own errors."""
    try:
        yield
    except (RagKVError, DatabaseError):
        raise
    except BaseException:
        session.invalidate()
        raise


@contextmanager
def translated() -> Iterator[None]:
    """Translate errors of the database. Raises Unavailable for what may succeed later. The reason is for the log: it
    names hosts and users."""
    try:
        yield
    except (PoolTimeout, DBAPIError) as error:
        message = _message(error)
        if message is None:
            raise
        log.warning("%s: %s", message.partition(":")[0], reason(error))
        raise Unavailable(message) from error


def may_pass(error: DBAPIError) -> bool:
    """Whether another try may succeed."""
    return _message(error) is not None


def reason(error: Exception) -> str:
    """One line, for operators."""
    original = error.orig if isinstance(error, DBAPIError) else error
    fields = _fields_of(original)
    return (
        f"{fields.get('C')}: {fields.get('M', '')}" if fields else str(original) or type(original).__name__
    ).splitlines()[0]


def _discard_broken(context: ExceptionContext) -> None:
    error = context.original_exception
    assert context.dialect is not None and context.dialect.loaded_dbapi is not None
    is_reported = isinstance(error, context.dialect.loaded_dbapi.DatabaseError)
    if not is_reported:  # by the server: replies may be left unread
        context.is_disconnect, context.invalidate_pool_on_disconnect = True, False
    if isinstance(error, OSError):  # the driver lets some of its socket's errors through as they are
        log.warning("the connection to the database broke: %s", error)
        raise Unavailable(AWAY)
    raised, fields = context.sqlalchemy_exception, _fields_of(error)
    if fields.get("C") == _READ_ONLY:  # it may lead to a standby: the next one may lead to the server that took over
        context.is_disconnect = True
    if raised is not None and fields:  # leave out the values of the row or the parameter that PostgreSQL names
        shown = ("S", "C") if str(fields.get("C")).startswith(_DATA) else ("S", "C", "M")
        safe = {field: fields[field] for field in shown if field in fields}
        raised.args = (str(raised.args[0]).replace(str(fields), str(safe)),)
        error.args = (safe,)
        if str(fields.get("C")).startswith(_CONSTRAINT):  # the driver tells so of duplicates alone
            raise IntegrityError(raised.statement, raised.params, error, raised.hide_parameters)


def _message(error: Exception) -> str | None:
    """Returns None for an error that another try does not mend."""
    if not isinstance(error, DBAPIError):
        return AWAY
    if (state := _fields_of(error.orig).get("C")) is not None:
        return _OF_STATE.get(state, AWAY if state.startswith(_AWAY) else None)
    if (code := getattr(error.orig, "sqlite_errorcode", None)) is not None:
        return _OF_CODE.get(code & 0xFF, AWAY) if isinstance(error, OperationalError) else None
    return AWAY if error.connection_invalidated or isinstance(error, InterfaceError | OperationalError) else None


def _fields_of(error: BaseException | None) -> dict[str, Any]:
    """The fields of a report of PostgreSQL's."""
    fields = error.args[0] if error is not None and error.args else None
    return fields if isinstance(fields, dict) else {}
