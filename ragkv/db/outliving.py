"""Rows of a database that outlive a restore over it: audit events, the list of deletions, and revocations of keys."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Column, Connection, MetaData, Select, Table, delete, exists, insert, or_, select, update

from ragkv.clock import utc_now
from ragkv.db.dump import reflected
from ragkv.db.file_tables import FileRow
from ragkv.db.tables import (
    ApiKeyRow,
    AuditRow,
    DeletionRow,
    DocumentRow,
    TenantRow,
    WebhookDeliveryRow,
)
from ragkv.files import StoredFile

Ends = tuple[datetime | None, datetime | None]
"""When a key was revoked, and when it expires."""
_OUTLIVING = (TenantRow, ApiKeyRow, AuditRow, DeletionRow)
_KEYS = ApiKeyRow.__tablename__
REVOCATION = ("revoked_at", "revoked_by", "revoked_by_person")


def hashes_by_id(connection: Connection) -> dict[str, str]:
    """The SHA-256 of each document's file."""
    return {row.id: row.sha256 for row in connection.execute(select(DocumentRow.id, DocumentRow.sha256))}


def deleted_ids(connection: Connection) -> set[str]:
    """The ids of all deleted rows: no two tables share one."""
    return set(connection.scalars(select(DeletionRow.id)))


def ends_of_keys(connection: Connection) -> dict[str, Ends]:
    keys = connection.execute(select(ApiKeyRow.id, ApiKeyRow.revoked_at, ApiKeyRow.expires_at))
    return {row.id: (row.revoked_at, row.expires_at) for row in keys}


@contextmanager
def set_aside(connection: Connection) -> Iterator[Mapping[str, Table]]:
    """Copies of the tables with such rows, by name, in temporary tables for as long as the block lasts."""
    names = {kind.__tablename__ for kind in _OUTLIVING}
    copies = {}
    for table in reflected(connection):
        if table.name in names:
            columns = (Column(column.name, column.type) for column in table.columns)
            copy = Table(f"outliving_{table.name}", MetaData(), *columns, prefixes=["TEMPORARY"])
            copy.create(connection)
            connection.execute(insert(copy).from_select(copy.columns.keys(), select(table)))
            copies[table.name] = copy
    yield copies
    for copy in copies.values():
        copy.drop(connection)


def reinstate(connection: Connection, copies: Mapping[str, Table], *, with_deleted: bool) -> list[StoredFile]:
    """Add the rows that were set aside to those of a backup, revoke the keys that were revoked, and delete what was
    deleted; `with_deleted` unlists it instead. Returns the files of what was deleted."""
    tables = {table.name: table for table in reflected(connection)}
    _reinstate_audit(connection, tables, copies)
    _reinstate_deletions(connection, tables["deletions"], copies["deletions"])
    _revoke_keys(connection, tables[_KEYS], copies[_KEYS])
    if not with_deleted:
        return _delete_again(connection, tables)
    for table in _deletable(tables):
        (row_id,) = table.primary_key.columns
        present = select(row_id)
        connection.execute(delete(DeletionRow).where(DeletionRow.kind == table.name, DeletionRow.id.in_(present)))
    return []


def _reinstate_audit(connection: Connection, tables: Mapping[str, Table], copies: Mapping[str, Table]) -> None:
    """A tenant that the backup does not have stays as the owner of its events. Tenants are the same by name."""
    tenants, events = tables["tenants"], tables["audit_events"]
    earlier, earlier_events = copies["tenants"], copies["audit_events"]
    is_there = or_(tenants.c.name == earlier.c.name, tenants.c.id == earlier.c.id)
    has_events = exists().where(earlier_events.c.tenant_id == earlier.c.id)
    owners = select(earlier).where(has_events, ~exists().where(is_there))
    connection.execute(insert(tenants).from_select(earlier.columns.keys(), owners))
    columns = [tenants.c.id if column.name == "tenant_id" else column for column in earlier_events.columns]
    missing = (
        select(*columns)
        .join_from(earlier_events, earlier, earlier.c.id == earlier_events.c.tenant_id)
        .join(tenants, tenants.c.name == earlier.c.name)
        .where(~exists().where(events.c.id == earlier_events.c.id))
    )
    connection.execute(insert(events).from_select(earlier_events.columns.keys(), missing))


def _reinstate_deletions(connection: Connection, deletions: Table, earlier: Table) -> None:
    is_there = exists().where(deletions.c.kind == earlier.c.kind, deletions.c.id == earlier.c.id)
    connection.execute(insert(deletions).from_select(earlier.columns.keys(), select(earlier).where(~is_there)))


def _revoke_keys(connection: Connection, keys: Table, earlier: Table) -> None:
    """Keys whose rows were removed a year after they ended are revoked, not removed: without keys a service is open."""
    revoked = select(earlier.c.id).where(earlier.c.revoked_at.is_not(None))
    values = {name: select(earlier.c[name]).where(earlier.c.id == keys.c.id).scalar_subquery() for name in REVOCATION}
    connection.execute(update(keys).where(keys.c.id.in_(revoked)).values(values))
    again = update(keys).where(keys.c.id.in_(_listed(_KEYS)), keys.c.revoked_at.is_(None))
    connection.execute(again.values(revoked_at=utc_now()))


def _deletable(tables: Mapping[str, Table]) -> list[Table]:
    return [table for table in tables.values() if table.name != _KEYS and len(table.primary_key.columns) == 1]


def _delete_again(connection: Connection, tables: Mapping[str, Table]) -> list[StoredFile]:
    is_deleted = or_(DocumentRow.id.in_(_listed("documents")), DocumentRow.collection_id.in_(_listed("collections")))
    documents = select(DocumentRow.tenant_id, DocumentRow.sha256).where(is_deleted)
    uploads = select(FileRow.tenant_id, FileRow.sha256).where(FileRow.id.in_(_listed("files")))
    files = [StoredFile(*row) for row in connection.execute(documents.union(uploads))]
    messages = WebhookDeliveryRow.document_id.in_(select(DocumentRow.id).where(is_deleted))
    connection.execute(delete(WebhookDeliveryRow).where(messages))
    for table in _deletable(tables):
        (row_id,) = table.primary_key.columns
        connection.execute(delete(table).where(row_id.in_(_listed(table.name))))
    return files


def _listed(kind: str) -> Select[str]:
    return select(DeletionRow.id).where(DeletionRow.kind == kind)
