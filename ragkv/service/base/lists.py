"""Membership in a list of any length, as one parameter of a statement.

`column IN (:a, :b, ...)` takes a parameter for each value; drivers and servers end at 65,535 of them, or at 32,766.
Here the list is one parameter: an array on PostgreSQL, a JSON array on SQLite.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Boolean, ColumnElement, Dialect, SQLColumnExpression, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import UserDefinedType

from ragkv.text import storable


def one_of(column: SQLColumnExpression[Any], values: Iterable[str]) -> ColumnElement[bool]:
    """Whether a text column equals one of the values."""
    return _OneOf(column, bindparam(None, [storable(value) for value in values], type_=_Texts(), unique=True))


class _Texts(UserDefinedType[Sequence[str]]):
    """A list of texts as the one text that the database reads it from."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        return _array if dialect.name == "postgresql" else lambda values: msgspec.json.encode(values).decode()


class _OneOf(FunctionElement[bool]):
    name = "one_of"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: Any = None) -> "_OneOf":
        """The element itself: SQLAlchemy would ask SQLite whether it `= 1`, for which SQLite uses no index."""
        return self


@compiles(_OneOf)
def _compiled(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(part, **options) for part in element.clauses)
    if compiler.dialect.name == "postgresql":
        return f"{column} = ANY (CAST({values} AS TEXT[]))"
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608 - made of compiled parts


def _array(values: Sequence[str]) -> str:
    """PostgreSQL's form of an array, every element quoted: bare, `null` would be no text."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"
