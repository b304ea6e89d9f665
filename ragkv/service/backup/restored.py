"""Rows in a restore: those of the service that outlive it, and those of the backup as a restored database needs them.

Audit events, the list of deletions, and revocations of keys outlive a restore. After it no worker holds a document, and
no KV is counted yet.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    Select,
    Table,
    bindparam,
    case,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)

from ragkv.ids import utc_now
from ragkv.service.backup.dump import reflected
from ragkv.service.base.database import RELEASED
from ragkv.service.base.file_store import StoredFile
from ragkv.service.base.status import Status
from ragkv.service.base.tables import (
    ApiKeyRow,
    AuditRow,
    ChunkRow,
    CollectionRow,
    DeletionRow,
    DocumentRow,
    FileRow,
    TenantRow,
    WebhookDeliveryRow,
)
from ragkv.service.webhooks.statements import FAILED, PENDING

_OUTLIVING = (TenantRow, ApiKeyRow, AuditRow, DeletionRow)
_KEYS = ApiKeyRow.__tablename__
REVOCATION = ("revoked_at", "revoked_by", "revoked_by_person")
UNHELD: Mapping[str, Mapping[str, Any]] = {"documents": {**RELEASED, "attempts": 0, "stage": ""}}
"""Values, by table and column, that replace those of a backup's rows. Chunks go on naming their KV, so that
files of it that are there are not taken for unused ones."""

NOT_SENT = "not sent: a backup was restored in which it was pending"


def hashes_by_id(connection: Connection) -> dict[str, str]:
    """The SHA-256 of each document's file."""
    return {row.id: row.sha256 for row in connection.execute(select(DocumentRow.id, DocumentRow.sha256))}


def deleted_ids(connection: Connection) -> set[str]:
    """The ids of all deleted rows: no two tables share one."""
    return set(connection.scalars(select(DeletionRow.id)))


def valid_and_ended_keys(connection: Connection) -> tuple[set[str], set[str]]:
    """Ids of API keys that are valid now, and of those that were revoked or deleted, and stay so."""
    keys = connection.execute(select(ApiKeyRow.id, ApiKeyRow.revoked_at, ApiKeyRow.expires_at)).all()
    moment = utc_now()
    revoked = {key.id for key in keys if key.revoked_at is not None}
    unexpired = {key.id for key in keys if key.expires_at is None or key.expires_at > moment}
    return unexpired - revoked, revoked | deleted_ids(connection)


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
    deletions, earlier = tables["deletions"], copies["deletions"]
    is_listed = exists().where(deletions.c.kind == earlier.c.kind, deletions.c.id == earlier.c.id)
    connection.execute(insert(deletions).from_select(earlier.columns.keys(), select(earlier).where(~is_listed)))
    # Keys whose rows were removed a year after they ended are revoked, not removed: without keys a service is open.
    keys, earlier_keys = tables[_KEYS].c, copies[_KEYS].c
    values = {
        name: select(earlier_keys[name]).where(earlier_keys.id == keys.id).scalar_subquery() for name in REVOCATION
    }
    revoked = select(earlier_keys.id).where(earlier_keys.revoked_at.is_not(None))
    connection.execute(update(tables[_KEYS]).where(keys.id.in_(revoked)).values(values))
    again = update(tables[_KEYS]).where(keys.id.in_(_listed(_KEYS)), keys.revoked_at.is_(None))
    connection.execute(again.values(revoked_at=utc_now()))
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


def versions(connection: Connection) -> dict[str, int]:
    """Versions of documents: how often their chunks were written, which processes that mirror them compare."""
    return {row.id: row.version for row in connection.execute(select(DocumentRow.id, DocumentRow.version))}


def make_consistent(connection: Connection, earlier: Mapping[str, int]) -> None:
    """Documents that were ready are searchable until their KV is made again; those in work begin anew. Messages of
    webhooks that were pending are not sent: perhaps they were since.

    Versions and generations grow past those there were, so that no process mistakes what it remembers, or an answer it
    kept, for what was restored. Of documents that no worker takes up again no KV is named: it would be counted by none.
    `earlier`: the versions before.
    """
    left_alone = select(DocumentRow.id).where(or_(DocumentRow.kv_evicted, DocumentRow.status == Status.FAILED))
    connection.execute(update(ChunkRow).where(ChunkRow.document_id.in_(left_alone)).values(kv_key=None))
    _move(connection, Status.READY, to=Status.SEARCHABLE)
    for status in (Status.PARSING, Status.INDEXING):
        _move(connection, status, to=Status.ACCEPTED)
    pending = update(WebhookDeliveryRow).where(WebhookDeliveryRow.status == PENDING)
    connection.execute(pending.values(status=FAILED, error=NOT_SENT))
    changed = [
        {"document": document_id, "larger": max(version, earlier[document_id]) + 1}
        for document_id, version in versions(connection).items()
        if document_id in earlier
    ]
    if changed:
        by_id = update(DocumentRow.__table__).where(DocumentRow.id == bindparam("document"))  # type: ignore[arg-type]
        connection.execute(by_id.values(version=bindparam("larger")), changed)
    timestamp = int(time.time())
    newest = case((CollectionRow.generation < timestamp, timestamp), else_=CollectionRow.generation + 1)
    connection.execute(update(CollectionRow).values(generation=newest))


def _move(connection: Connection, status: Status, to: Status) -> None:
    moved = update(DocumentRow).where(DocumentRow.status == status).values(status=to, updated_at=DocumentRow.updated_at)
    connection.execute(moved)
