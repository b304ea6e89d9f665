"""Statements about documents: finding, claiming, releasing; and which stored files rows name."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Select,
    Table,
    Update,
    and_,
    case,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import flag_modified

from ragkv.service.base.database import RELEASED, has_come, is_free
from ragkv.service.base.lists import one_of
from ragkv.service.base.long_work import LONGEST_DELAY_S
from ragkv.service.base.page import Keys
from ragkv.service.base.status import FINISHED, REREAD, UNFINISHED, Status
from ragkv.service.base.tables import DocumentLabelRow, DocumentRow, FileRow
from ragkv.service.documents.metadata import Metadata, labels_of
from ragkv.text import storable

FRESH: dict[str, Any] = {
    "attempts": 0, "outages": 0, "retry_at": None, "error": None, "stage": "", **RELEASED,
    "kv_evicted": False,
}  # fmt: skip
"""What a document has of its attempts before the first."""
NOT_REPLACED: dict[str, Any] = {
    "is_replaced": False, "earlier_sha256": None, "earlier_num_bytes": None, "earlier_name": None,
}  # fmt: skip
"""A document whose text is of its present file."""
_TO_READ_AGAIN = FRESH | {"status": Status.SEARCHABLE, "stage": REREAD, "progress_done": 0, "progress_total": 0}

DOCUMENT_KEYS: Keys = (DocumentRow.created_at.expression, DocumentRow.id.expression)
PROGRESS = (
    DocumentRow.id,
    DocumentRow.name,
    DocumentRow.status,
    DocumentRow.stage,
    DocumentRow.progress_done,
    DocumentRow.progress_total,
    DocumentRow.error,
    DocumentRow.kv_evicted,
    DocumentRow.updated_at,
)
_NAMES: Mapping[str, Sequence[str]] = {"documents": ("sha256", "earlier_sha256"), "files": ("sha256",)}
"""The columns of tables that name a file."""
_TABLES = tuple(FileRow.metadata.tables[table] for table in _NAMES)


def document_by_id(tenant_id: str, document_id: str) -> Select[DocumentRow]:
    """A tenant's document. Ids of others find nothing."""
    return select(DocumentRow).where(DocumentRow.id == document_id, DocumentRow.tenant_id == tenant_id)


def documents_by_hash(collection_id: str, *hashes: str) -> Select[DocumentRow]:
    return select(DocumentRow).where(DocumentRow.collection_id == collection_id, one_of(DocumentRow.sha256, hashes))


def documents_where(
    tenant_id: str,
    collection_id: str | None = None,
    status: Status | None = None,
    name: str | None = None,
    labels: Sequence[tuple[str, Sequence[str]]] = (),
) -> Select[DocumentRow]:
    """A tenant's documents: of a collection, with a status, a part of the name in any case, one label of each key."""
    statement = select(DocumentRow).where(DocumentRow.tenant_id == tenant_id)
    for key, values in labels:
        label = (DocumentLabelRow.document_id == DocumentRow.id, DocumentLabelRow.key == storable(key))
        statement = statement.where(exists().where(*label, one_of(DocumentLabelRow.value, values)))
    if collection_id is not None:
        statement = statement.where(DocumentRow.collection_id == collection_id)
    if status is not None:
        statement = statement.where(DocumentRow.status == status)
    if name is not None:
        statement = statement.where(DocumentRow.name.icontains(storable(name), autoescape=True))
    return statement


def among(documents: Select[DocumentRow], document_ids: Sequence[str]) -> Select[DocumentRow]:
    """Restrict documents to these ids."""
    return documents.where(one_of(DocumentRow.id, document_ids))


def locked(documents: Select[DocumentRow]) -> Select[DocumentRow]:
    """The same documents; on PostgreSQL their rows are locked, in the order in which all transactions lock several."""
    return documents.order_by(DocumentRow.id).with_for_update()


def ids_among(document_ids: Sequence[str]) -> Select[str]:
    """Ids among these that are documents, of any tenant."""
    return select(DocumentRow.id).where(one_of(DocumentRow.id, document_ids))


def ids_of(documents: Select[DocumentRow]) -> Select[str]:
    return documents.with_only_columns(DocumentRow.id)


def number_of(documents: Select[DocumentRow]) -> Select[int]:
    return documents.with_only_columns(func.count())


def progress_in_collection(collection_id: str, moment: datetime, *, unfinished_too: bool) -> Select[*tuple[Any, ...]]:
    """Progress of the documents of a collection that changed since the moment; oldest change first.

    Columns, not rows: a collection that is being read may have thousands of them.
    """
    recent = DocumentRow.updated_at >= moment
    condition = or_(unfinished(), recent) if unfinished_too else recent
    mine = DocumentRow.collection_id == collection_id
    return select(*PROGRESS).where(mine, condition).order_by(DocumentRow.updated_at, DocumentRow.id)


def label(session: Session, document: DocumentRow, metadata: Metadata) -> None:
    """Give a document its metadata, in place of what it had, and what filters find of it. The column is set also to
    what it is already: on PostgreSQL that locks the row before its `DocumentLabelRow`s change."""
    document.labels = metadata
    flag_modified(document, "labels")
    session.execute(delete(DocumentLabelRow).where(DocumentLabelRow.document_id == document.id))
    session.add_all(
        DocumentLabelRow(document_id=document.id, key=key, value=value) for key, value in labels_of(metadata)
    )


def forget_documents(document_ids: Sequence[str]) -> Delete:
    """With chunks, labels, jobs and attachments, which the database removes with them."""
    return delete(DocumentRow).where(one_of(DocumentRow.id, document_ids))


def named_files(hashes: Sequence[str] | None = None, tables: Iterable[Table] = _TABLES) -> Select[str, str]:
    """(tenant, SHA-256) of every file that a document or an upload names, or of those with these hashes, each once.
    tables: those of an older schema."""
    columns = [
        (table.c.tenant_id, table.c[name]) for table in tables for name in _NAMES.get(table.name, ()) if name in table.c
    ]
    named = union(
        *(
            select(owner, name.label("sha256")).where(name.is_not(None) if hashes is None else one_of(name, hashes))
            for owner, name in columns
        )
    ).subquery()
    return select(named.c.tenant_id, named.c.sha256).order_by(named.c.tenant_id, named.c.sha256)


def bytes_of_tenant(tenant_id: str) -> Select[int]:
    """Bytes of a tenant's files, each counted once; those of documents' earlier files, while they are kept, too."""
    kinds = (DocumentRow, FileRow)
    named = [select(row.sha256, row.num_bytes).where(row.tenant_id == tenant_id) for row in kinds]
    earlier = select(DocumentRow.earlier_sha256, DocumentRow.earlier_num_bytes)
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.earlier_sha256.is_not(None))
    stored = union(*named, earlier.where(*mine)).subquery()
    return select(func.coalesce(func.sum(stored.c.num_bytes), 0))


def versions_of_documents(
    tenant_id: str, collection_id: str, index_fingerprint: str, encoder_fingerprint: str
) -> Select[str, int, str, bool, bool, bool]:
    """(id, version, name, whether its chunks are there, whether their vectors are of this encoder, whether their file
    was replaced)."""
    of_encoder = is_of_encoder(index_fingerprint, encoder_fingerprint)
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.collection_id == collection_id)
    columns = (DocumentRow.id, DocumentRow.version, DocumentRow.name)
    return select(*columns, DocumentRow.num_chunks > 0, of_encoder, DocumentRow.is_replaced).where(*mine)


def is_of_encoder(index_fingerprint: str, encoder_fingerprint: str) -> ColumnElement[bool]:
    """Whether a document's vectors were made with this encoder."""
    return or_(
        DocumentRow.index_fingerprint == index_fingerprint, DocumentRow.encoder_fingerprint == encoder_fingerprint
    )


def stuck_documents(moment: datetime) -> Select[str]:
    """Ids of documents that wait, oldest first; the sweep queues them again."""
    return select(DocumentRow.id).where(waiting(moment)).order_by(DocumentRow.created_at)


def claim(document_id: str, owner: str, moment: datetime, until: datetime) -> Update:
    """Take the lease and count an attempt. Matches one row, or none: gone, finished or held by another."""
    return (
        update(DocumentRow)
        .where(DocumentRow.id == document_id, unfinished(), is_free(DocumentRow.lease_until, moment))
        .values(lease_owner=owner, lease_until=until, attempts=DocumentRow.attempts + 1)
    )


def start_over(*document_ids: str) -> Update:
    """Reset documents so that they are ingested again from their files, with fresh attempts."""
    return update(DocumentRow).where(one_of(DocumentRow.id, document_ids)).values(status=Status.ACCEPTED, **FRESH)


def read_again(document_id: str) -> Update:
    """A document to be read again from its file, with fresh attempts. Its chunks answer until then."""
    return update(DocumentRow).where(DocumentRow.id == document_id).values(_TO_READ_AGAIN)


def read_outdated_again(index_fingerprint: str) -> Update:
    """`read_again`, of every finished document whose chunks were made with other models or settings. The others are at
    it. One that failed starts over."""
    finished = or_(DocumentRow.status.in_(FINISHED), DocumentRow.kv_evicted)
    status = case((DocumentRow.status == Status.FAILED, Status.ACCEPTED), else_=Status.SEARCHABLE)
    outdated = (DocumentRow.num_chunks > 0, DocumentRow.index_fingerprint != index_fingerprint)
    return update(DocumentRow).where(*outdated, finished).values(_TO_READ_AGAIN | {"status": status})


def note_encoder(index_fingerprints: Sequence[str], encoder_fingerprint: str) -> Update:
    """Record the encoder of documents that have none recorded and were made with one of these."""
    unrecorded = (DocumentRow.encoder_fingerprint == "", DocumentRow.index_fingerprint.in_(index_fingerprints))
    return (
        update(DocumentRow)
        .where(*unrecorded)
        .values(encoder_fingerprint=encoder_fingerprint, updated_at=DocumentRow.updated_at)
    )


def count_of_other_encoders(index_fingerprint: str, encoder_fingerprint: str) -> Select[int]:
    """The number of documents with chunks whose vectors another encoder made."""
    other = not_(is_of_encoder(index_fingerprint, encoder_fingerprint))
    return select(func.count()).select_from(DocumentRow).where(DocumentRow.num_chunks > 0, other)


def precompute_again(*document_ids: str) -> Update:
    """Documents whose KV is to be made where it is missing, with fresh attempts. Those that a worker is to read, or is
    at, stay as they are."""
    is_whole = or_(DocumentRow.status == Status.READY, DocumentRow.kv_evicted)
    these = one_of(DocumentRow.id, document_ids)
    return update(DocumentRow).where(these, is_whole).values(status=Status.SEARCHABLE, **FRESH)


def waiting(moment: datetime) -> ColumnElement[bool]:
    """Whether a document is unfinished and due, and no worker holds it."""
    longest_wait = timedelta(seconds=LONGEST_DELAY_S)
    is_due = has_come(DocumentRow.retry_at, moment, longest_wait)
    return and_(unfinished(), is_free(DocumentRow.lease_until, moment), is_due)


def unfinished() -> ColumnElement[bool]:
    """Whether there is still work to do. A document whose KV was evicted stays searchable until its rebuild is
    requested."""
    return and_(DocumentRow.status.in_(UNFINISHED), DocumentRow.kv_evicted.is_(False))


def searchable_documents() -> Select[str, str, str, int]:
    """(tenant, collection, document, chunks) of documents that searches find: those that have chunks. A document that
    is to be read again, or of which that failed, answers by the chunks it has."""
    columns = (DocumentRow.tenant_id, DocumentRow.collection_id, DocumentRow.id, DocumentRow.num_chunks)
    return select(*columns).where(DocumentRow.num_chunks > 0)


def count_by_status() -> Select[Status, int, int, int]:
    """(status, documents, chunks, tokens)."""
    sums = (func.count(), func.sum(DocumentRow.num_chunks), func.sum(DocumentRow.num_tokens))
    return select(DocumentRow.status, *sums).group_by(DocumentRow.status)
