"""Statements about the audit log. Rows are inserted, and removed once they are old: triggers reject changes."""

from datetime import datetime

from sqlalchemy import Connection, Delete, Select, delete, insert, or_, select

from ragkv.service.base.page import Keys
from ragkv.service.base.tables import ApiKeyRow, AuditRow, TenantRow

AUDIT_KEYS: Keys = (AuditRow.at.expression, AuditRow.id.expression)


def audit_of(
    tenant_id: str,
    resource: str | None = None,
    key_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Select[AuditRow, str | None]:
    """(event, name of its key) of a tenant: those about a resource, by a key, from `since` on, before `until`."""
    statement = (
        select(AuditRow, ApiKeyRow.name)
        .outerjoin(ApiKeyRow, ApiKeyRow.id == AuditRow.key_id)
        .where(AuditRow.tenant_id == tenant_id)
    )
    if resource is not None:
        statement = statement.where(or_(AuditRow.resource == resource, AuditRow.within == resource))
    if key_id is not None:
        statement = statement.where(AuditRow.key_id == key_id)
    if since is not None:
        statement = statement.where(AuditRow.at >= since)
    return statement if until is None else statement.where(AuditRow.at < until)


def add_event_of_all_tenants(connection: Connection, **event: str) -> None:
    """Record an event in the log of every tenant."""
    for tenant_id in connection.scalars(select(TenantRow.id)).all():
        connection.execute(insert(AuditRow).values(tenant_id=tenant_id, **event))


def forget_audit(cutoff: datetime, limit: int) -> Delete:
    """Events from before the cutoff."""
    old = select(AuditRow.id).where(AuditRow.at < cutoff).order_by(AuditRow.at).limit(limit)
    return delete(AuditRow).where(AuditRow.id.in_(old))
