"""Lists of documents and chunks, one page at a time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ragkv.ids import is_id
from ragkv.kv.file import KVShape
from ragkv.kv.store import KVStore
from ragkv.service.base.database import Database
from ragkv.service.base.page import Ordinal, from_cursor, newest_first, rows_behind, to_cursor, view_from
from ragkv.service.base.status import UNFINISHED, Status
from ragkv.service.base.tables import ChunkRow, DocumentRow
from ragkv.service.documents.chunk_statements import CHUNK_KEYS, chunks_of, ordinal_at, to_chunk
from ragkv.service.documents.documents import DocumentView, find_document, view_of
from ragkv.service.documents.metadata import MetadataFilter, conditions
from ragkv.service.documents.statements import DOCUMENT_KEYS, among, documents_where, ids_of

if TYPE_CHECKING:
    from sqlalchemy import Select

PageNumber = Annotated[
    int | None, "Number of the page, slide or sheet, starting from 1; null for formats without pages."
]
PageLabel = Annotated[
    str | None, "Page as a reader calls it: `page 3`, `slide 3`, `sheet 3`; null for formats without pages."
]
TextStart = Annotated[int, "Offset of the first character in the document's text."]
TextEnd = Annotated[int, "Offset after the last character in the document's text."]


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Filter over a tenant's documents. `name`: a part of the name, in any case."""

    tenant_id: str
    collection_id: str | None = None
    status: Status | None = None
    name: str | None = None
    ids: frozenset[str] | None = None
    metadata: MetadataFilter | None = None


class DocumentPage(msgspec.Struct, frozen=True):
    """A page of documents, newest first."""

    items: Annotated[list[DocumentView], "Documents, newest first."]
    next: str | None


class ChunkKV(msgspec.Struct, frozen=True):
    """The stored KV of a chunk."""

    state: Annotated[
        Literal["stored", "pending", "missing"],
        "`stored`; `pending`: not computed yet; `missing`: evicted, lost or not stored for lack of space, and "
        "recomputed when a question needs it.",
    ]
    bytes: Annotated[int, "Size of the KV file in bytes."]
    shape: Annotated[KVShape | None, "Shape of the KV file; null without a readable one."] = None


class ChunkView(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk: characters [start, end) of a document's text."""

    id: str
    ordinal: Annotated[int, "Position of the chunk in the document, starting from 0."]
    title: Annotated[str, "Title of the document."]
    text: Annotated[str, "Text of the chunk."]
    page: PageNumber
    page_label: PageLabel
    start: TextStart
    end: TextEnd
    tokens: Annotated[int, "Number of tokens of the chunk."]
    kv: Annotated[ChunkKV, "Stored KV of the chunk."]


class ChunkPage(msgspec.Struct, frozen=True):
    """A page of a document's chunks, in order."""

    items: Annotated[list[ChunkView], "Chunks in the order of the text."]
    next: str | None


def list_documents(criteria: DocumentFilter, limit: int, cursor: str | None, database: Database) -> DocumentPage:
    """A page of documents, newest first. Raises Rejected for an invalid cursor."""
    rows, following = newest_first(database, _found(criteria), DOCUMENT_KEYS, limit, cursor)
    return DocumentPage([view_of(row) for (row,) in rows], following)


def matching_ids(criteria: DocumentFilter, database: Database) -> frozenset[str]:
    """The ids of all documents that are wanted."""
    return frozenset(database.scalars(ids_of(_found(criteria))))


def list_chunks(
    tenant_id: str, document_id: str, limit: int, cursor: str | None, database: Database, store: KVStore
) -> ChunkPage:
    """A page of a document's chunks, in order. Raises NotFound for the document, Rejected for a cursor that is not
    ours."""
    after = from_cursor(cursor, Ordinal)
    position = None if after is None else (after,)
    with database.reading() as session:
        document = find_document(session, tenant_id, document_id)
        is_coming = document.status in UNFINISHED and not document.kv_evicted
        media_type = document.media_type
        chunks = rows_behind(session, chunks_of(document_id), CHUNK_KEYS, limit, position)
    items = [_chunk_view(row, media_type, store, is_coming=is_coming) for (row,) in chunks.items]
    return ChunkPage(items, chunks.next(lambda row: row[0].ordinal))


def chunks_from(tenant_id: str, document_id: str, char: int, database: Database) -> str | None:
    """The cursor of the page that begins with the chunk in which a character of the document's text lies.

    None if that is the first page, or there is no such character. Raises NotFound for the document.
    """
    with database.reading() as session:
        find_document(session, tenant_id, document_id)
        ordinal = session.scalar(ordinal_at(document_id, char))
    return to_cursor(ordinal - 1) if ordinal else None


def chunks_before(page: ChunkPage, limit: int) -> str | None:
    """The cursor of the page before this one; None if that is the first page."""
    ordinal = page.items[0].ordinal if page.items else 0
    return to_cursor(ordinal - limit - 1) if ordinal > limit else None


def _found(criteria: DocumentFilter) -> "Select[DocumentRow]":
    labels = conditions(criteria.metadata or {})
    statement = documents_where(criteria.tenant_id, criteria.collection_id, criteria.status, criteria.name, labels)
    return statement if criteria.ids is None else among(statement, [i for i in criteria.ids if is_id(i)])


def _chunk_view(row: ChunkRow, media_type: str, store: KVStore, *, is_coming: bool) -> ChunkView:
    """`is_coming`: KV that is not there yet is made without a request."""
    chunk, key = to_chunk(row, media_type), row.kv_key
    if key is not None and key in store:
        kv = ChunkKV("stored", store.bytes_of(key), store.shape(key))
    else:
        kv = ChunkKV("pending" if is_coming else "missing", 0)
    return view_from(ChunkView, chunk, page_label=chunk.page_label_at(), tokens=chunk.num_tokens, kv=kv)
