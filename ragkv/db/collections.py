"""Statements about collections."""

from sqlalchemy import Select, func, select

from ragkv.db.tables import CollectionRow, DocumentRow


def collection_facts(tenant_id: str) -> Select[CollectionRow, int, int, int]:
    """(collection, documents, chunks, bytes) of a tenant's collections."""
    chunks = func.coalesce(func.sum(DocumentRow.num_chunks), 0)
    num_bytes = func.coalesce(func.sum(DocumentRow.num_bytes), 0)
    return (
        select(CollectionRow, func.count(DocumentRow.id), chunks, num_bytes)
        .outerjoin(DocumentRow, DocumentRow.collection_id == CollectionRow.id)
        .where(CollectionRow.tenant_id == tenant_id)
        .group_by(CollectionRow.id)
    )


def collection_named(tenant_id: str, name: str) -> Select[CollectionRow]:
    return select(CollectionRow).where(CollectionRow.tenant_id == tenant_id, CollectionRow.name == name)


def document_ids_in(collection_id: str) -> Select[str]:
    return select(DocumentRow.id).where(DocumentRow.collection_id == collection_id)
