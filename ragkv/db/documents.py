"""Statements about documents: finding, claiming, releasing."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, func, or_, select, update

from ragkv.db.tables import DocumentRow, Status

UNFINISHED = (Status.ACCEPTED, Status.PARSING, Status.INDEXING, Status.SEARCHABLE)
_FRESH: dict[str, Any] = {"attempts": 0, "error": None, "stage": "", "lease_owner": None, "lease_until": None}


def document_by_id(tenant_id: str, document_id: str) -> Select[DocumentRow]:
    """A tenant's document. Ids of others find nothing."""
    return select(DocumentRow).where(DocumentRow.id == document_id, DocumentRow.tenant_id == tenant_id)


def document_by_hash(collection_id: str, sha256: str) -> Select[DocumentRow]:
    return select(DocumentRow).where(DocumentRow.collection_id == collection_id, DocumentRow.sha256 == sha256)


def documents_of_file(tenant_id: str, sha256: str) -> Select[int]:
    """How many of a tenant's documents, of whatever collection, share one stored file."""
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.sha256 == sha256)
    return select(func.count()).select_from(DocumentRow).where(*mine)


def bytes_of_tenant(tenant_id: str) -> Select[int]:
    """What a tenant's documents take together."""
    return select(func.coalesce(func.sum(DocumentRow.num_bytes), 0)).where(DocumentRow.tenant_id == tenant_id)


def versions_of_indexed(tenant_id: str, collection_id: str, recipe: str) -> Select[str, int]:
    """(id, version) of every document whose chunks are there and fit the present models."""
    return select(DocumentRow.id, DocumentRow.version).where(
        DocumentRow.tenant_id == tenant_id,
        DocumentRow.collection_id == collection_id,
        DocumentRow.num_chunks > 0,
        DocumentRow.recipe == recipe,
    )


def stuck_documents(now: datetime) -> Select[str]:
    """Ids of documents that are unfinished and that nobody holds, oldest first; the sweep queues them again."""
    return select(DocumentRow.id).where(DocumentRow.status.in_(UNFINISHED), _free(now)).order_by(DocumentRow.created_at)


def claim(document_id: str, owner: str, now: datetime, until: datetime) -> Update:
    """Take the lease and count an attempt. Matches one row, or none: gone, finished or held by another."""
    return (
        update(DocumentRow)
        .where(DocumentRow.id == document_id, DocumentRow.status.in_(UNFINISHED), _free(now))
        .values(lease_owner=owner, lease_until=until, attempts=DocumentRow.attempts + 1)
    )


def held(document_id: str, owner: str) -> Update:
    """The document, if `owner` still holds its lease: add `.values(...)`. Matches no row once the lease is lost."""
    return update(DocumentRow).where(DocumentRow.id == document_id, DocumentRow.lease_owner == owner)


def start_over(document_id: str) -> Update:
    """A document to be ingested again from its file, with fresh attempts."""
    return update(DocumentRow).where(DocumentRow.id == document_id).values(status=Status.ACCEPTED, **_FRESH)


def start_outdated_over(recipe: str) -> Update:
    """Likewise every document whose chunks were made with other models or settings."""
    outdated = (DocumentRow.num_chunks > 0, DocumentRow.recipe != recipe, DocumentRow.status != Status.ACCEPTED)
    return update(DocumentRow).where(*outdated).values(status=Status.ACCEPTED, **_FRESH)


def precompute_outdated_again(recipe: str, kv_recipe: str) -> Update:
    """Documents whose chunks fit and whose KV does not are searchable, no longer ready."""
    outdated = (DocumentRow.status == Status.READY, DocumentRow.recipe == recipe, DocumentRow.kv_recipe != kv_recipe)
    return update(DocumentRow).where(*outdated).values(status=Status.SEARCHABLE, **_FRESH)


def count_by_status() -> Select[Status, int, int, int]:
    """(status, documents, chunks, tokens)."""
    sums = (func.count(), func.sum(DocumentRow.num_chunks), func.sum(DocumentRow.num_tokens))
    return select(DocumentRow.status, *sums).group_by(DocumentRow.status)


def _free(now: datetime) -> ColumnElement[bool]:
    return or_(DocumentRow.lease_until.is_(None), DocumentRow.lease_until < now)
