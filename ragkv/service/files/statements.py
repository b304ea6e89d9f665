"""Statements about files that documents are made of: uploaded ones, with the collections they are attached to, and
those at paths, on the command line."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Delete, Select, and_, delete, exists, func, or_, select

from ragkv.service.base.lists import one_of
from ragkv.service.base.page import Keys
from ragkv.service.base.status import Status
from ragkv.service.base.tables import (
    AttachmentRow,
    ChunkRow,
    CollectionRow,
    DocumentRow,
    FileBatchMemberRow,
    FileBatchRow,
    FileRow,
    IngestedPathRow,
)
from ragkv.service.data_sources.statements import is_in_data_source
from ragkv.service.documents.attachment_statements import is_in_mail

FILE_KEYS: Keys = (FileRow.created_at.expression, FileRow.id.expression)
COLLECTION_KEYS: Keys = (CollectionRow.created_at.expression, CollectionRow.id.expression)

ENTRY_ID: ColumnElement[str] = func.coalesce(AttachmentRow.file_id, DocumentRow.id)
"""A document that is no file's goes by its own id."""
ENTRY_MOMENT: ColumnElement[datetime] = func.coalesce(AttachmentRow.created_at, DocumentRow.created_at)
ENTRY_KEYS: Keys = (ENTRY_MOMENT, ENTRY_ID)


def files_of(tenant_id: str, purpose: str | None = None) -> Select[FileRow]:
    mine = select(FileRow).where(FileRow.tenant_id == tenant_id)
    return mine if purpose is None else mine.where(FileRow.purpose == purpose)


def collections_by_age(tenant_id: str) -> Select[CollectionRow]:
    return select(CollectionRow).where(CollectionRow.tenant_id == tenant_id)


def entries_of(
    tenant_id: str, collection_id: str, statuses: Sequence[Status] | None = None
) -> Select[DocumentRow, str, datetime]:
    """(document, id, moment) of each file in a collection: attached files, and documents that are no file's."""
    statement = _entries(tenant_id).where(DocumentRow.collection_id == collection_id)
    return statement if statuses is None else statement.where(DocumentRow.status.in_(statuses))


def entries_of_batch(
    tenant_id: str, batch: FileBatchRow, statuses: Sequence[Status] | None = None
) -> Select[DocumentRow, str, datetime]:
    """`entries_of`, of a batch's files that are still in the collection."""
    members = (FileBatchMemberRow.batch_id == batch.id, FileBatchMemberRow.file_id == AttachmentRow.file_id)
    listed = entries_of(tenant_id, batch.collection_id, statuses)
    return listed.join(FileBatchMemberRow, members[0] & members[1])


def status_counts(tenant_id: str, collection_ids: Sequence[str]) -> Select[str, Status, int]:
    """(collection id, status, files) of collections, files as `entries_of` lists them."""
    return (
        select(DocumentRow.collection_id, DocumentRow.status, func.count())
        .outerjoin(AttachmentRow, AttachmentRow.document_id == DocumentRow.id)
        .where(DocumentRow.tenant_id == tenant_id, one_of(DocumentRow.collection_id, collection_ids))
        .group_by(DocumentRow.collection_id, DocumentRow.status)
    )


def bytes_in(collection_ids: Sequence[str]) -> Select[str, int]:
    """(collection id, bytes) of collections that hold something."""
    total = func.sum(DocumentRow.num_bytes)
    mine = one_of(DocumentRow.collection_id, collection_ids)
    return select(DocumentRow.collection_id, total).where(mine).group_by(DocumentRow.collection_id)


def goes_with(file_id: str, still: Sequence[ColumnElement[bool]] = ()) -> ColumnElement[bool]:
    """Whether a document goes when this file, which may be the document by its own id, is detached: it is no other
    file's, no data source's and no mail's, and was not uploaded itself; and `still` holds of it."""
    is_anothers = exists().where(AttachmentRow.document_id == DocumentRow.id, AttachmentRow.file_id != file_id)
    came_with_it = and_(~DocumentRow.was_uploaded, ~is_in_data_source(), ~is_in_mail())
    return and_(~is_anothers, or_(came_with_it, DocumentRow.id == file_id), *still)


def places_of(file_id: str) -> Select[str]:
    """The collections that a file is in."""
    return (
        select(DocumentRow.collection_id)
        .join(AttachmentRow, AttachmentRow.document_id == DocumentRow.id)
        .where(AttachmentRow.file_id == file_id)
        .order_by(DocumentRow.id)
    )


def forget_attachments_of(document_id: str) -> Delete:
    return delete(AttachmentRow).where(AttachmentRow.document_id == document_id)


def entries_of_documents(tenant_id: str, document_ids: Sequence[str]) -> Select[DocumentRow, str, datetime]:
    """Like `entries_of`, of these documents in any collection, the oldest file last."""
    these = _entries(tenant_id).where(one_of(DocumentRow.id, document_ids))
    return these.order_by(ENTRY_MOMENT.desc(), ENTRY_ID.desc())


def texts_of_document(document_id: str) -> Select[str]:
    """The text of each of its chunks, in order."""
    return select(ChunkRow.text).where(ChunkRow.document_id == document_id).order_by(ChunkRow.ordinal)


def batch_by_id(tenant_id: str, collection_id: str, batch_id: str) -> Select[FileBatchRow]:
    """A batch of a tenant's collection. Those of others find nothing."""
    return (
        select(FileBatchRow)
        .join(CollectionRow, CollectionRow.id == FileBatchRow.collection_id)
        .where(CollectionRow.tenant_id == tenant_id, CollectionRow.id == collection_id, FileBatchRow.id == batch_id)
    )


def count_members(batch_id: str) -> Select[int]:
    return select(func.count(FileBatchMemberRow.file_id)).where(FileBatchMemberRow.batch_id == batch_id)


def document_of_path(collection_id: str, path_sha256: str) -> Select[str]:
    """The id of the document made of a path."""
    mine = (IngestedPathRow.collection_id == collection_id, IngestedPathRow.path_sha256 == path_sha256)
    return select(IngestedPathRow.document_id).where(*mine)


def is_of_path_alone(path_sha256: str) -> ColumnElement[bool]:
    """Whether a document was made of this path, and neither another path nor an attached file, a data source or a mail
    has it."""
    of_document = IngestedPathRow.document_id == DocumentRow.id
    is_its_own = exists().where(of_document, IngestedPathRow.path_sha256 == path_sha256)
    is_anothers = exists().where(of_document, IngestedPathRow.path_sha256 != path_sha256)
    is_file = exists().where(AttachmentRow.document_id == DocumentRow.id)
    return and_(is_its_own, ~is_anothers, ~is_file, ~is_in_data_source(), ~is_in_mail())


def forget_paths_of(document_id: str) -> Delete:
    return delete(IngestedPathRow).where(IngestedPathRow.document_id == document_id)


def _entries(tenant_id: str) -> Select[DocumentRow, str, datetime]:
    entries = select(DocumentRow, ENTRY_ID, ENTRY_MOMENT).where(DocumentRow.tenant_id == tenant_id)
    return entries.outerjoin(AttachmentRow, AttachmentRow.document_id == DocumentRow.id)
