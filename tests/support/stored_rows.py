"""The rows of a database, whatever its schema."""

from typing import Any

from sqlalchemy import Connection, select

from ragkv.service.backup.dump import reflected


def rows(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    """Rows by table, each by column, in the order of their primary keys."""
    return {
        table.name: [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]
        for table in reflected(connection)
    }
