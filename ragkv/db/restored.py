"""Rows as a restored database needs them: no worker holds a document, and no KV is counted yet."""

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, case, or_, select, update

from ragkv.db.leases import RELEASED
from ragkv.db.tables import ChunkRow, CollectionRow, DocumentRow, WebhookDeliveryRow
from ragkv.db.webhooks import FAILED, PENDING
from ragkv.status import Status

UNHELD: Mapping[str, Mapping[str, Any]] = {"documents": {**RELEASED, "attempts": 0, "stage": ""}}
"""Values, by table and column, that rows of a backup get in place of their own. Chunks go on naming their KV, so that
files of it that are there are not taken for unused ones."""

NOT_SENT = "not sent: a backup was restored in which it was pending"


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
