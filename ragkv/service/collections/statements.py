"""Statements about collections."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, Update, func, select, update

from ragkv.service.base.database import Database
from ragkv.service.base.lists import one_of
from ragkv.service.base.tables import CollectionRow, DocumentRow

BY_NAME = (CollectionRow.name.expression,)


def collection_facts(tenant_id: str) -> Select[CollectionRow, int, int, int, int]:
    """(collection, documents, chunks, tokens, bytes) of a tenant's collections."""
    chunks = func.coalesce(func.sum(DocumentRow.num_chunks), 0)
    tokens = func.coalesce(func.sum(DocumentRow.num_tokens), 0)
    num_bytes = func.coalesce(func.sum(DocumentRow.num_bytes), 0)
    return (
        select(CollectionRow, func.count(DocumentRow.id), chunks, tokens, num_bytes)
        .outerjoin(DocumentRow, DocumentRow.collection_id == CollectionRow.id)
        .where(CollectionRow.tenant_id == tenant_id)
        .group_by(CollectionRow.id)
    )


def pins_of_collections(tenant_id: str) -> Select[str, str, bool]:
    """(id, name, whether its KV is pinned) of a tenant's collections."""
    statement = select(CollectionRow.id, CollectionRow.name, CollectionRow.kv_pinned)
    return statement.where(CollectionRow.tenant_id == tenant_id)


def changes_of(tenant_id: str, collection_id: str) -> Select[int, int]:
    """(generation, marked changes). The first grows with every change of the collection's documents.

    Where the second grows as much, documents whose chunks were written meanwhile have a later `changed_in`.
    """
    mine = (CollectionRow.id == collection_id, CollectionRow.tenant_id == tenant_id)
    return select(CollectionRow.generation, CollectionRow.marked_changes).where(*mine)


def cache_terms(tenant_id: str, collection_id: str) -> Select[float, int, int]:
    """(threshold, lifetime in seconds, generation) of the collection's answer cache, unless it is off."""
    columns = (CollectionRow.cache_threshold, CollectionRow.cache_ttl_s, CollectionRow.generation)
    mine = (CollectionRow.tenant_id == tenant_id, CollectionRow.id == collection_id, CollectionRow.cache_answers)
    return select(*columns).where(*mine)


def generation_of(database: Database, tenant_id: str, collection_id: str) -> int:
    """The collection's generation; 0 if it is not there."""
    return database.scalar(changes_of(tenant_id, collection_id)) or 0


def sizes_in(collection_id: str, limit: int) -> Select[str, int]:
    """(id, chunks) of the collection's documents, the oldest first."""
    statement = select(DocumentRow.id, DocumentRow.num_chunks).where(DocumentRow.collection_id == collection_id)
    return statement.order_by(DocumentRow.created_at).limit(limit)


def generations_of(collection_ids: Sequence[str]) -> Select[str, int]:
    """(id, generation) of those that exist."""
    return select(CollectionRow.id, CollectionRow.generation).where(one_of(CollectionRow.id, collection_ids))


def collection_changed(collection_id: str) -> Update:
    """The next generation, of a change that writes no chunks and removes no document.

    It belongs at the end of the transaction of every change that an answer could show: it locks the collection's row.
    """
    return update(CollectionRow).where(CollectionRow.id == collection_id).values(**_MARKED)


def collection_of_document_changed(document_id: str) -> Update:
    """`collection_changed`, of the collection that holds the document."""
    owner = select(DocumentRow.collection_id).where(DocumentRow.id == document_id).scalar_subquery()
    return update(CollectionRow).where(CollectionRow.id == owner).values(**_MARKED)


def mark_changed_document(document_id: str) -> Update:
    """Leave the present generation in a document whose name or chunks are others, or outdated or no longer so: right
    after `collection_changed`."""
    present = select(CollectionRow.generation).where(CollectionRow.id == DocumentRow.collection_id).scalar_subquery()
    return update(DocumentRow).where(DocumentRow.id == document_id).values(changed_in=present)


def collection_lost_documents(collection_id: str) -> Update:
    """The next generation, of a change that no document shows: mirrors of the collection are read anew as a whole."""
    return update(CollectionRow).where(CollectionRow.id == collection_id).values(generation=_MARKED["generation"])


_MARKED: dict[str, Any] = {
    "generation": CollectionRow.generation + 1,
    "marked_changes": CollectionRow.marked_changes + 1,
}
