"""The list of what was deleted on request, which outlives a restore of an earlier backup.

Of collections and documents their rows say what else goes with them.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Delete, delete, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from ragkv.service.base.table_base import Base
from ragkv.service.base.tables import DeletionRow


def note_deletions(session: Session, kind: type[Base], ids: Iterable[str]) -> None:
    """List deleted rows, in the transaction that deletes them. Rows that are listed already stay as they are."""
    rows = [{"kind": kind.__tablename__, "id": row_id} for row_id in ids]
    if rows:
        insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
        session.connection().execute(insert(DeletionRow).on_conflict_do_nothing(), rows)


def unlist_deletion(kind: type[Base], row_id: str) -> Delete:
    """For a row that is there again."""
    return delete(DeletionRow).where(DeletionRow.kind == kind.__tablename__, DeletionRow.id == row_id)


def forget_deletions(cutoff: datetime, limit: int) -> Delete:
    """Deletions from before the cutoff."""
    old = select(DeletionRow.kind, DeletionRow.id).where(DeletionRow.at < cutoff).order_by(DeletionRow.at).limit(limit)
    return delete(DeletionRow).where(tuple_(DeletionRow.kind, DeletionRow.id).in_(old))
