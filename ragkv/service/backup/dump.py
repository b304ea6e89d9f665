"""Tables as JSON lines: streamed out of one snapshot of a database, and into another of either kind."""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    Connection,
    DateTime,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    exists,
    insert,
    select,
    text,
)

from ragkv.errors import Rejected
from ragkv.service.base.database import Database, lift_time_limits
from ragkv.service.base.migrate import VERSION_TABLE, revision_of

LEFT_OUT = (VERSION_TABLE, "kv_entries")
"""Beside the schema's version, what names KV files: KV is made again from the documents."""
BATCH = 200
ID_CHARS = 64
"""Length of the columns for ids and hashes."""
_ID = re.compile(r"[0-9A-Za-z_:-]*")


class TableDump(msgspec.Struct, frozen=True):
    """One table's file: a row a line, each a list in the order of `columns`."""

    name: str
    columns: list[str]
    rows: int
    sha256: str


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """One moment of the database, whatever others write while the block runs. To be read only."""
    with database.reading() as session:
        lift_time_limits(session)
        connection = session.connection()
        revision_of(connection)  # SQLite's snapshot begins with the first statement that reads
        yield connection


@contextmanager
def replacing(database: Database) -> Iterator[Connection]:
    """One transaction in which no other writes. Others read what was there before, until it is committed."""
    with database.writing() as session:
        lift_time_limits(session)
        connection = session.connection()
        if connection.dialect.name == "postgresql":
            names = ", ".join(f'"{table.name}"' for table in tables_of(connection))
            connection.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))
        yield connection


def tables_of(connection: Connection) -> list[Table]:
    """The tables as they stand, whatever the schema's version; those that are referred to first."""
    return [table for table in reflected(connection) if table.name not in LEFT_OUT]


def reflected(connection: Connection) -> list[Table]:
    """`tables_of`, with those that dumps leave out. None in a JSON column is NULL, never JSON's null."""
    schema = MetaData()
    schema.reflect(connection)
    for table in schema.tables.values():
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type.none_as_null = True
    return [table for table in schema.sorted_tables if table.name != VERSION_TABLE]


def dump(connection: Connection, folder: Path) -> list[TableDump]:
    """Write every table to FOLDER/NAME.jsonl."""
    dumps = []
    for table in tables_of(connection):
        rows, digest = 0, hashlib.sha256()
        with table_file(folder, table.name).open("xb") as file:
            for row in connection.execute(select(table), execution_options={"yield_per": BATCH}):
                line = msgspec.json.encode([_plain(value) for value in row]) + b"\n"
                file.write(line)
                digest.update(line)
                rows += 1
        columns = [str(column.name) for column in table.columns]
        dumps.append(TableDump(str(table.name), columns, rows, digest.hexdigest()))
    return dumps


def load(
    connection: Connection, dumps: Sequence[TableDump], folder: Path, fixed: Mapping[str, Mapping[str, Any]]
) -> None:
    """Insert what `dump` wrote. Raises Rejected for ids that could be paths.

    `fixed` has the values, by table and column, that replace those of every row.
    """
    by_name = {dumped.name: dumped for dumped in dumps}
    for table in (table for table in tables_of(connection) if table.name in by_name):
        read = {column.name: _reader(column) for column in table.columns}
        lines = lines_of(folder, by_name[table.name])
        while batch := list(islice(lines, BATCH)):
            rows = (
                {name: None if value is None else read[name](value) for name, value in line.items()} for line in batch
            )
            connection.execute(insert(table), [{**row, **fixed.get(table.name, {})} for row in rows])


def clear(connection: Connection) -> None:
    """Delete all rows, also of the tables that dumps leave out."""
    for table in reversed(reflected(connection)):
        connection.execute(delete(table))


def tables_with_rows(connection: Connection) -> list[str]:
    filled = (
        table
        for table in tables_of(connection)
        if connection.scalar(select(exists(select(text("1")).select_from(table))))
    )
    return [table.name for table in filled]


def table_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


def lines_of(folder: Path, dumped: TableDump) -> Iterator[dict[str, Any]]:
    """The rows of a table's file as JSON has them: moments and bytes are text."""
    with table_file(folder, dumped.name).open("rb") as file:
        for line in file:
            yield dict(zip(dumped.columns, msgspec.json.decode(line), strict=True))


def _plain(value: Any) -> Any:
    """Moments in UTC, which SQLite keeps without saying so; msgspec writes them and bytes as text."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value


def _reader(column: Column[Any]) -> Callable[[Any], Any]:
    """From JSON's text to the column's kind of value. Ids and hashes become names of files."""
    if isinstance(column.type, LargeBinary):
        return base64.b64decode
    if isinstance(column.type, DateTime):
        return datetime.fromisoformat
    if isinstance(column.type, String) and column.type.length == ID_CHARS:
        return _checked_id
    return lambda value: value


def _checked_id(value: Any) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Rejected(f"the backup has a row with the id {ascii(value)[:80]}. Take another backup.")
    return value
