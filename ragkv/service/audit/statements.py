"""Statements about what outlives a restore of an earlier backup: the audit log, and the list of what was deleted on
request.

Events are inserted, and removed once they are old: triggers reject changes. Of deleted collections and documents their
rows say what else goes with them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Delete, Select, delete, insert, or_, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from ragkv.service.base.page import Keys
from ragkv.service.base.tables import ApiKeyRow, AuditRow, Base, DeletionRow, TenantRow
from ragkv.text import storable

AUDIT_KEYS: Keys = (AuditRow.at.expression, AuditRow.id.expression)
MAX_CHARS = 200
"""Length of one name in an event."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter over a tenant's events: about a resource, by a key, from `since` on, before `until`."""

    tenant_id: str
    resource: str | None = None
    key_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def events_among(audit_filter: AuditFilter) -> Select[AuditRow, str | None]:
    """(event, name of its key) of a tenant's events."""
    statement = (
        select(AuditRow, ApiKeyRow.name)
        .outerjoin(ApiKeyRow, ApiKeyRow.id == AuditRow.key_id)
        .where(AuditRow.tenant_id == audit_filter.tenant_id)
    )
    if audit_filter.resource is not None:
        resource = storable(audit_filter.resource)
        statement = statement.where(or_(AuditRow.resource == resource, AuditRow.within == resource))
    if audit_filter.key_id is not None:
        statement = statement.where(AuditRow.key_id == storable(audit_filter.key_id))
    if audit_filter.since is not None:
        statement = statement.where(AuditRow.at >= audit_filter.since)
    return statement if audit_filter.until is None else statement.where(AuditRow.at < audit_filter.until)


def add_event_of_all_tenants(connection: Connection, **event: str) -> None:
    """Record an event in the log of every tenant."""
    for tenant_id in connection.scalars(select(TenantRow.id)).all():
        connection.execute(insert(AuditRow).values(tenant_id=tenant_id, **event))


def forget_audit(cutoff: datetime, limit: int) -> Delete:
    """Events from before the cutoff."""
    old = select(AuditRow.id).where(AuditRow.at < cutoff).order_by(AuditRow.at).limit(limit)
    return delete(AuditRow).where(AuditRow.id.in_(old))


def note_deletions(session: Session, kind: type[Base], ids: Iterable[str]) -> None:
    """List deleted rows, in the transaction that deletes them. Rows that are listed already stay as they are."""
    rows = [{"kind": kind.__tablename__, "id": row_id} for row_id in ids]
    if rows:
        insert_into = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
        session.connection().execute(insert_into(DeletionRow).on_conflict_do_nothing(), rows)


def unlist_deletion(kind: type[Base], row_id: str) -> Delete:
    """For a row that is there again."""
    return delete(DeletionRow).where(DeletionRow.kind == kind.__tablename__, DeletionRow.id == row_id)


def forget_deletions(cutoff: datetime, limit: int) -> Delete:
    """Deletions from before the cutoff."""
    old = select(DeletionRow.kind, DeletionRow.id).where(DeletionRow.at < cutoff).order_by(DeletionRow.at).limit(limit)
    return delete(DeletionRow).where(tuple_(DeletionRow.kind, DeletionRow.id).in_(old))
