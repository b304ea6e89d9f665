"""SQLite in a local file: its folder, pragmas and locks."""

import math
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event

from ragkv.errors import Unavailable
from ragkv.files_io import make_folder
from ragkv.service.base.failures import discard_broken

BUSY_TIMEOUT_S = 30
EMPTYING_TIMEOUT_S = 1
"""How long writers wait at most for readers, so that the write-ahead log can be emptied."""
WRITES = "ragkv_writes"
"""The execution option of connections that write."""


def open_sqlite(url: URL) -> Engine:
    """An engine; a missing folder is made. Folder and file are for this user alone."""
    if url.database:
        path = Path(url.database)
        make_folder(path.parent)
        path.touch(mode=0o600)  # whatever the mode of the folder is
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            if file.exists() and file.stat().st_uid == os.geteuid():
                file.chmod(0o600)
    engine = create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT_S}, hide_parameters=True, json_deserializer=msgspec.json.decode
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    discard_broken(engine)
    return engine


def empty_write_ahead_log(path: str) -> None:
    """Write all changes into the database file, and leave nothing of deleted rows beside it. While a connection reads
    for long it stays as it is. Raises Unavailable."""
    try:
        with closing(sqlite3.connect(path, timeout=EMPTYING_TIMEOUT_S)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        raise Unavailable(f"SQLite's write-ahead log cannot be emptied: {error}") from error


def _prepare(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver would begin too late for _begin to choose the lock
    for pragma in ("journal_mode = WAL", "foreign_keys = ON", "synchronous = FULL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")
    for name, function in (("exp", math.exp), ("ln", math.log)):  # not in every build of SQLite
        connection.create_function(name, 1, function, deterministic=True)
    # For comparisons in any case: SQLite's own knows ASCII alone, and `str.lower` tells a sigma that ends a word from
    # others.
    connection.create_function(
        "lower", 1, lambda value: value.casefold() if isinstance(value, str) else value, deterministic=True
    )


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once, without waiting, when another wrote in between:
    # writers take the lock when they begin.
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
