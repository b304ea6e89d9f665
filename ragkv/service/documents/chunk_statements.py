"""Chunks as rows: packed arrays, statements, and conversion back to domain objects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Select, Update, and_, bindparam, func, literal_column, select, update
from sqlalchemy.orm import defer, load_only

from ragkv.chunk import Chunk
from ragkv.retrieve.index import Point, Vectors
from ragkv.service.base.lists import one_of
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, DocumentRow
from ragkv.service.documents.statements import is_of_encoder

_IDS = np.dtype("<u4")
_FLOATS = np.dtype("<f4")
CHUNK_KEYS = (ChunkRow.ordinal.expression,)
USED_WITHOUT_KV = and_(ChunkRow.kv_uses > literal_column("0"), ChunkRow.document_id.concat("") == DocumentRow.id)
"""Joins documents with those of their chunks that answers used without KV. SQLite starts at the index of these because
0 is no parameter and no index has the id with text added; otherwise it reads all chunks of the documents."""
_WITHOUT_VECTORS = (defer(ChunkRow.dense), defer(ChunkRow.sparse_indices), defer(ChunkRow.sparse_values))
_VECTORS_ONLY = load_only(
    ChunkRow.id, ChunkRow.document_id, ChunkRow.title, ChunkRow.dense, ChunkRow.sparse_indices, ChunkRow.sparse_values
)


def chunk_row(tenant_id: str, chunk: Chunk, vectors: Vectors) -> ChunkRow:
    """The row of a chunk and its vectors."""
    return ChunkRow(
        id=chunk.id,
        tenant_id=tenant_id,
        document_id=chunk.document_id,
        ordinal=chunk.ordinal,
        title=chunk.title,
        text=chunk.text,
        start=chunk.start,
        end=chunk.end,
        page=chunk.page,
        token_ids=np.asarray(chunk.token_ids, dtype=_IDS).tobytes(),
        page_breaks=np.asarray(chunk.page_breaks, dtype=_IDS).tobytes(),
        dense=vectors.dense.astype(_FLOATS).tobytes(),
        sparse_indices=vectors.indices.astype(_IDS).tobytes(),
        sparse_values=vectors.values.astype(_FLOATS).tobytes(),
    )


def to_chunk(row: ChunkRow, media_type: str = "") -> Chunk:
    """`media_type`: the document's."""
    token_ids = tuple(np.frombuffer(row.token_ids, _IDS).tolist())
    page_breaks = tuple(np.frombuffer(row.page_breaks or b"", _IDS).tolist())
    return Chunk(
        row.id, row.document_id, row.ordinal, row.title, row.text, row.start, row.end, row.page, token_ids, page_breaks,
        media_type,
    )  # fmt: skip


def to_point(row: ChunkRow, *, of_encoder: bool) -> Point:
    """`of_encoder`: whether the present encoder made its vectors; otherwise the dense one is left out."""
    vectors = Vectors(
        np.frombuffer(row.dense if of_encoder else b"", _FLOATS),
        np.frombuffer(row.sparse_indices, _IDS),
        np.frombuffer(row.sparse_values, _FLOATS),
    )
    return Point(row.id, row.document_id, row.title, vectors)


def chunks_of(document_id: str) -> Select[ChunkRow]:
    """A document's chunks in any order, without their vectors."""
    return _chunks().where(ChunkRow.document_id == document_id)


def ordinal_at(document_id: str, char: int) -> Select[int | None]:
    """The first chunk of a document that ends after a character of its text."""
    return select(func.min(ChunkRow.ordinal)).where(ChunkRow.document_id == document_id, ChunkRow.end > char)


def chunks_between(document_id: str, start: int, end: int) -> Select[ChunkRow]:
    """The chunks that have some of characters [start, end) of a document's text, in order, without their vectors."""
    return chunks_of(document_id).where(ChunkRow.end > start, ChunkRow.start < end).order_by(ChunkRow.ordinal)


def chunks_near(document_id: str, start: int, end: int) -> Select[ChunkRow]:
    """The chunks of a document from one ordinal to another, in order, without their vectors."""
    near = (ChunkRow.ordinal >= start, ChunkRow.ordinal <= end)
    return chunks_of(document_id).where(*near).order_by(ChunkRow.ordinal)


def chunks_on_page(document_id: str, page: int, ordinal: int) -> Select[ChunkRow]:
    """The chunks that begin on a page of a document before an ordinal, nearest first."""
    on_page = chunks_of(document_id).where(ChunkRow.page == page, ChunkRow.ordinal < ordinal)
    return on_page.order_by(ChunkRow.ordinal.desc()).limit(100)


def chunks_by_id(tenant_id: str, chunk_ids: Sequence[str]) -> Select[*tuple[Any, ...]]:
    """(chunk, media type, index fingerprint and `outdated` columns of its document): a tenant's chunks, without their
    vectors. Ids of others find nothing."""
    whose = ChunkRow.tenant_id.concat("")  # no index of this: SQLite would read all chunks of the tenant for these few
    mine = (one_of(ChunkRow.id, chunk_ids), whose == tenant_id)
    statement = _chunks().add_columns(
        DocumentRow.media_type,
        DocumentRow.index_fingerprint,
        DocumentRow.is_replaced,
        DocumentRow.earlier_name,
        DocumentRow.status,
        DocumentRow.error,
    )
    return statement.join(DocumentRow, DocumentRow.id == ChunkRow.document_id).where(*mine)


def points_of(document_ids: Sequence[str], index_fingerprint: str, encoder_fingerprint: str) -> Select[ChunkRow, bool]:
    """(chunk, whether its vectors are of this encoder): the documents' chunks with their vectors and without their
    text."""
    return (
        select(ChunkRow, is_of_encoder(index_fingerprint, encoder_fingerprint))
        .join(DocumentRow, DocumentRow.id == ChunkRow.document_id)
        .options(_VECTORS_ONLY)
        .where(one_of(ChunkRow.document_id, document_ids))
        .order_by(ChunkRow.document_id, ChunkRow.ordinal)
    )


def titles_of(
    tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
) -> Select[str, int, str, str]:
    """(document, ordinal, id, title) of a collection's chunks, or of those of some documents."""
    columns = (ChunkRow.document_id, ChunkRow.ordinal, ChunkRow.id, ChunkRow.title)
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.collection_id == collection_id)
    titled = select(*columns).join(DocumentRow, DocumentRow.id == ChunkRow.document_id).where(*mine)
    return titled if document_ids is None else titled.where(one_of(ChunkRow.document_id, document_ids))


def ready_chunks(tenant_id: str, collection_id: str, index_fingerprint: str) -> Select[ChunkRow]:
    """A collection's chunks that have KV and fit the present models, in document order, without their vectors."""
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.collection_id == collection_id)
    ready = (DocumentRow.status == Status.READY, DocumentRow.index_fingerprint == index_fingerprint)
    of_ready = _chunks().join(DocumentRow, DocumentRow.id == ChunkRow.document_id).where(*mine, *ready)
    return of_ready.order_by(DocumentRow.name, DocumentRow.id, ChunkRow.ordinal)


def kv_names(chunk_ids: Sequence[str]) -> Select[str, str | None]:
    """(chunk, KV key)."""
    return select(ChunkRow.id, ChunkRow.kv_key).where(one_of(ChunkRow.id, chunk_ids))


def name_kv() -> Update:
    """Update to run on a connection with a list of {"chunk": id, "key": KV key}. Uses without KV are counted anew."""
    chunk = update(ChunkRow.__table__).where(ChunkRow.id == bindparam("chunk"))  # type: ignore[arg-type]
    return chunk.values(kv_key=bindparam("key"), kv_uses=0)


def _chunks() -> Select[ChunkRow]:
    return select(ChunkRow).options(*_WITHOUT_VECTORS)
