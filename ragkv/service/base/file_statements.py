"""Statements about the stored files that rows refer to, for all tenants."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Select, Table, select, union

from ragkv.service.base.file_tables import FileRow
from ragkv.service.base.lists import one_of

_NAMES: Mapping[str, Sequence[str]] = {"documents": ("sha256", "earlier_sha256"), "files": ("sha256",)}
"""The columns of tables that name a file."""
_TABLES = tuple(FileRow.metadata.tables[table] for table in _NAMES)


def named_files(tables: Iterable[Table] = _TABLES) -> Select[str, str]:
    """(tenant, SHA-256) of every file that a document or an upload names, each once. tables: those of an older
    schema."""
    columns = [
        (table.c.tenant_id, table.c[name]) for table in tables for name in _NAMES.get(table.name, ()) if name in table.c
    ]
    named = union(*(select(owner, name.label("sha256")).where(name.is_not(None)) for owner, name in columns)).subquery()
    return select(named.c.tenant_id, named.c.sha256).order_by(named.c.tenant_id, named.c.sha256)


def named_files_among(hashes: Sequence[str]) -> Select[str, str]:
    """`named_files`, of these hashes, in any order."""
    columns = [(table.c.tenant_id, table.c[name]) for table in _TABLES for name in _NAMES[table.name]]
    named = union(*(select(owner, name.label("sha256")).where(one_of(name, hashes)) for owner, name in columns))
    return select(*named.subquery().c)
