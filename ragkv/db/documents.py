"""Statements about documents: finding, claiming, releasing."""

from datetime import datetime

from sqlalchemy import ColumnElement, Select, Update, func, or_, select, update

from ragkv.db.tables import DocumentRow, Status

UNFINISHED = (Status.ACCEPTED, Status.PARSING, Status.INDEXING, Status.SEARCHABLE)
INDEXED = (Status.SEARCHABLE, Status.READY)


def document_by_id(tenant_id: str, document_id: str) -> Select[DocumentRow]:
    """A tenant's document. Ids of others find nothing."""
    return select(DocumentRow).where(DocumentRow.id == document_id, DocumentRow.tenant_id == tenant_id)


def document_by_hash(collection_id: str, sha256: str) -> Select[DocumentRow]:
    return select(DocumentRow).where(DocumentRow.collection_id == collection_id, DocumentRow.sha256 == sha256)


def documents_of_file(sha256: str) -> Select[int]:
    """How many documents, of whatever collection, share one stored file."""
    return select(func.count()).select_from(DocumentRow).where(DocumentRow.sha256 == sha256)


def versions_of_indexed(tenant_id: str, collection_id: str) -> Select[str, int]:
    """(id, version) of every document that can be searched. A failed document whose chunks are there is still read."""
    return select(DocumentRow.id, DocumentRow.version).where(
        DocumentRow.tenant_id == tenant_id, DocumentRow.collection_id == collection_id, DocumentRow.num_chunks > 0
    )


def stuck_documents(now: datetime) -> Select[str]:
    """Ids of documents that are unfinished and that nobody holds, oldest first; the sweep queues them again."""
    return select(DocumentRow.id).where(DocumentRow.status.in_(UNFINISHED), _free(now)).order_by(DocumentRow.created_at)


def outdated_documents(recipe: str) -> Select[str]:
    """Ids of documents whose chunks were made with other models or settings."""
    return select(DocumentRow.id).where(DocumentRow.num_chunks > 0, DocumentRow.recipe != recipe)


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


def start_over(document_ids: list[str]) -> Update:
    """Documents to be ingested again from their files. Their present chunks answer until then."""
    return (
        update(DocumentRow)
        .where(DocumentRow.id.in_(document_ids))
        .values(status=Status.ACCEPTED, attempts=0, error=None, stage="", lease_owner=None, lease_until=None)
    )


def count_by_status() -> Select[Status, int, int, int]:
    """(status, documents, chunks, tokens)."""
    sums = (func.count(), func.sum(DocumentRow.num_chunks), func.sum(DocumentRow.num_tokens))
    return select(DocumentRow.status, *sums).group_by(DocumentRow.status)


def _free(now: datetime) -> ColumnElement[bool]:
    return or_(DocumentRow.lease_until.is_(None), DocumentRow.lease_until < now)
