"""PostgreSQL by URL, through pg8000: connecting, limits, and the check that a connection is in sync."""

import secrets
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

from ragkv.errors import Rejected, Unavailable
from ragkv.service.base.failures import AWAY, discard_broken
from ragkv.threads import CircuitBreaker

CONNECT_TIMEOUT_S = 10
"""For connecting, and for the check of a connection before each use."""
SILENCE_S = 90
"""How long a statement waits for the server's next word: longer than the server's own limits, of which a server that
hangs, or whose machine is gone, says nothing."""
LIMITS = {"statement_timeout": "60s", "lock_timeout": "30s", "idle_in_transaction_session_timeout": "5min"}
"""Enforced by the server, whatever becomes of this process. Migrations have their own."""
DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
"""A commit is on disk when it returns, though the server, role or database says `off`. The other values stay: they are
about standby servers."""
READS, BRIEF = "ragkv_reads", "ragkv_brief"
"""Execution options: of connections that read; of those whose statements take no longer than CONNECT_TIMEOUT_S."""
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds and probes after which a peer that is gone without a word is noticed: a minute."""


def open_postgres(url: URL) -> Engine:
    """An engine whose connections are limited, and never used again once they are out of step. Raises Rejected for a
    URL without a user."""
    query = dict(url.query)
    if not url.username and "user" not in query:
        raise Rejected("RAGKV_DATABASE_URL names no user: use postgresql://USER:PASSWORD@HOST/DATABASE")
    connect_args: dict[str, Any] = {"timeout": CONNECT_TIMEOUT_S, "tcp_keepalive": True}
    if folder := query.pop("host", None):
        query["unix_sock"] = f"{folder}/.s.PGSQL.{url.port or 5432}"
    connect_args["ssl_context"] = _ssl_context(str(query.pop("sslmode", "disable")))
    url = url.set(drivername="postgresql+pg8000", query=query)
    engine = create_engine(
        url,
        connect_args=connect_args,
        pool_size=10,
        pool_timeout=30,
        hide_parameters=True,
        json_deserializer=msgspec.json.decode,
    )
    engine.dialect.do_terminate = _give_up  # type: ignore[assignment]
    breaker = CircuitBreaker(CONNECT_TIMEOUT_S, AWAY)
    event.listen(engine, "do_connect", partial(_connect, breaker))
    event.listen(engine, "checkout", partial(_refuse_out_of_step, breaker))
    event.listen(engine, "begin", _begin)
    event.listen(engine, "handle_error", lambda context: breaker.note(context.original_exception))
    discard_broken(engine)
    return engine


def _connect(
    breaker: CircuitBreaker, dialect: Dialect, record: ConnectionPoolEntry, args: Any, options: dict[str, Any]
) -> Any:
    """A connection with the limits and DURABLE."""
    assert dialect.loaded_dbapi is not None
    try:
        with breaker.guarding():
            connection: Any = dialect.connect(*args, **options)
            sock: socket.socket = connection._usock  # noqa: SLF001 - pg8000 hands its socket out no other way
            supported = [name for name in _KEEPALIVE if hasattr(socket, name)]  # not every system has all
            for name in supported if sock.family != socket.AF_UNIX else ():
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), _KEEPALIVE[name])
            connection.execute_simple("".join(f"SET {name} = '{limit}';" for name, limit in LIMITS.items()) + DURABLE)
    except OSError as error:
        raise dialect.loaded_dbapi.InterfaceError(f"network error: {error}") from error
    return connection


def _give_up(connection: Any) -> None:
    """Close a connection that is not used again. A broken one cannot tell the server: no error, nor a trace in the
    log for each that an outage broke."""
    with suppress(Exception):
        connection.close()


def wait_in_silence(connection: Connection, limit_s: float | None = None) -> None:
    """Set another limit than SILENCE_S, or none, until the connection is used for something else."""
    driver: Any = connection.connection.driver_connection
    driver._usock.settimeout(limit_s)  # noqa: SLF001 - as above


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get(BRIEF):
        wait_in_silence(connection, CONNECT_TIMEOUT_S)
    # Every statement that reads would see another moment by default. One that writes is to see what others committed.
    if options.get(READS):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _refuse_out_of_step(breaker: CircuitBreaker, connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
    """Before each use: the answer must be that to this question, not the rest of an earlier one."""
    nonce = secrets.token_hex(8)
    try:
        with breaker.guarding():
            connection._usock.settimeout(CONNECT_TIMEOUT_S)  # noqa: SLF001 - as above
            answered = connection.execute_simple(f"SELECT '{nonce}'").rows
            connection._usock.settimeout(SILENCE_S)  # noqa: SLF001
    except Unavailable:
        raise
    except TimeoutError as error:  # others that were idle as long have probably lost their server too
        raise InvalidatePoolError("the server is silent") from error
    except Exception as error:
        raise DisconnectionError("the connection broke while it was idle") from error
    if answered != [[nonce]]:
        raise DisconnectionError("the connection is out of step")


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
        raise Rejected(f"RAGKV_DATABASE_URL: unknown sslmode={mode}")
    return context
