"""Files in collections: attach, list, change metadata, detach.

A file that is attached is a document there. Files with equal bytes are one document, which stays until the last of them
is detached. A document that was uploaded to the collection itself stays then, and goes by its own id; one that a data
source or a mail has stays as long as that does.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ragkv.errors import NotFound
from ragkv.service.audit.statements import note_deletions
from ragkv.service.base.database import Condition, Database, Session, advisory_lock
from ragkv.service.base.page import Page, PageRequest, Position, row_by_id, rows_of
from ragkv.service.base.status import Status
from ragkv.service.base.tables import AttachmentRow, DocumentRow, FileRow
from ragkv.service.base.tenants import CollectionRef, known_collection
from ragkv.service.collections.collections import insert_collection
from ragkv.service.collections.statements import collection_changed
from ragkv.service.data_sources.statements import attribute, files_that_keep
from ragkv.service.documents.attachment_statements import leave_to_mails
from ragkv.service.documents.documents import (
    Accepted,
    DocumentView,
    delete_documents,
    insert_document,
    relabel,
    revive,
    view_of,
)
from ragkv.service.documents.intake import Intake, check_document_quota
from ragkv.service.documents.metadata import Metadata, checked
from ragkv.service.documents.removal import Removal, discard_unnamed, uploads_lock
from ragkv.service.documents.requeue import enqueue
from ragkv.service.documents.statements import (
    among,
    documents_by_hash,
    documents_where,
    ids_of,
    locked,
)
from ragkv.service.files.statements import (
    ENTRY_ID,
    ENTRY_KEYS,
    entries_of,
    entries_of_documents,
    goes_with,
    places_of,
    texts_of_document,
)
from ragkv.service.files.uploads import find_file

if TYPE_CHECKING:
    from sqlalchemy import Row, Select


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A file in a collection: `file_id` is the document's own id where it was no file's."""

    file_id: str
    document: DocumentView
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Attach:
    """A file that is to be attached, and the metadata it is to have there; None leaves what there is."""

    file_id: str
    metadata: Metadata | None = None


def attach_files(
    ref: CollectionRef,
    files: Sequence[Attach],
    intake: Intake,
    also: Callable[[Session], None] = lambda session: None,
) -> None:
    """Attach all files, or none; commit, then queue them. `also` runs in the same transaction.

    Raises NotFound for an unknown file, Rejected for too much metadata, QuotaExceeded for more documents than the
    tenant may have.
    """
    with intake.database.writing() as session:
        advisory_lock(session, uploads_lock(ref.tenant_id))
        known_collection(session, ref.collection_id)
        waiting = _attach_all(session, ref, files, intake)
        also(session)
        session.execute(collection_changed(ref.collection_id))
    for document_id in waiting:
        enqueue(document_id, intake.queue)


def make_collection_of(tenant_id: str, name: str, file_ids: Sequence[str], intake: Intake) -> str:
    """Create a collection with these files, or nothing; commit, then queue them. Returns its id.

    Raises Rejected for a bad name, Conflict for one that is taken, NotFound for an unknown file, QuotaExceeded for more
    documents than the tenant may have.
    """
    with intake.database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))
        ref = CollectionRef(tenant_id, insert_collection(session, tenant_id, name), b"")
        waiting = _attach_all(session, ref, [Attach(file_id) for file_id in file_ids], intake)
    for document_id in waiting:
        enqueue(document_id, intake.queue)
    return ref.collection_id


def entry_of(ref: CollectionRef, file_id: str, database: Database) -> StoreEntry:
    """One file in a collection. Raises NotFound."""
    with database.reading() as session:
        return to_entry(_find(session, ref, file_id))


def texts_of(ref: CollectionRef, file_id: str, database: Database) -> list[str]:
    """The text of a file of a collection, chunk by chunk; none before it is read. Raises NotFound."""
    with database.reading() as session:
        document = _find(session, ref, file_id)[0]
        return list(session.scalars(texts_of_document(document.id)))


def list_entries(
    ref: CollectionRef, page: PageRequest, statuses: Sequence[Status] | None, database: Database
) -> Page[StoreEntry]:
    """A collection's files. Raises NotFound if the one to begin at does not exist."""
    with database.reading() as session:
        return entries_among(session, ref, entries_of(ref.tenant_id, ref.collection_id, statuses), page)


def entries_among(
    session: Session, ref: CollectionRef, listed: "Select[DocumentRow, str, datetime]", page: PageRequest
) -> Page[StoreEntry]:
    """One page of these files of a collection."""

    def position_of(file_id: str) -> Position:
        _, row_id, moment = _find(session, ref, file_id)
        return moment, row_id

    rows = rows_of(session, listed, ENTRY_KEYS, page, position_of)
    return Page([to_entry(row) for row in rows.items], rows.more)


def set_metadata(ref: CollectionRef, file_id: str, metadata: Metadata, database: Database) -> StoreEntry:
    """Give a file of a collection this metadata in place of what it had. Raises NotFound, Rejected for too much."""
    with database.writing() as session:
        advisory_lock(session, uploads_lock(ref.tenant_id))
        row = _find(session, ref, file_id, lock=True)
        relabel(session, row[0], checked(metadata))
        session.flush()
        session.execute(collection_changed(ref.collection_id))
        return to_entry(row)


def detach_file(
    ref: CollectionRef,
    file_id: str,
    removal: Removal,
    still: Sequence[Condition] = (),
) -> None:
    """Take a file out of a collection; the file itself stays. Its document goes, unless it is another file's, a
    data source's or a mail's, or was uploaded too.

    still: conditions on its document, asked when it goes. Raises NotFound, also where one of them does not hold. When
    the index is away it raises Unavailable and the file stays attached: detach it again.
    """
    with removal.database.writing() as session:
        advisory_lock(session, uploads_lock(ref.tenant_id))
        document = _find(session, ref, file_id, still, lock=True)[0]
        going = among(documents_where(ref.tenant_id, ref.collection_id), [document.id]).where(goes_with(file_id))
        document_goes = session.scalars(going).one_or_none() is not None
        if not document_goes:
            session.delete(session.get_one(AttachmentRow, (document.id, file_id)))
            session.flush()
            if (holder := session.execute(files_that_keep(document.id).limit(1)).first()) is not None:
                if attribute(document, *holder):
                    session.flush()
                    session.execute(collection_changed(document.collection_id))
            else:
                session.execute(leave_to_mails([document.id]))
    if not document_goes:
        removal.when_changed()
        return
    goes = goes_with(file_id, still)
    deleted = delete_documents(ref.tenant_id, ref.collection_id, [document.id], removal, goes)
    if document.id not in deleted:  # it became another file's meanwhile
        detach_file(ref, file_id, removal, still)


def delete_file(tenant_id: str, file_id: str, removal: Removal) -> None:
    """Take a file out of every collection, and delete it. Its bytes go with the last that uses them.

    Raises NotFound. When the index is away it raises
    Unavailable and the file stays, perhaps in fewer collections: delete it again.
    """
    with removal.database.reading() as session:
        sha256 = find_file(session, tenant_id, file_id).sha256
    while True:
        with removal.database.writing() as session:
            advisory_lock(session, uploads_lock(tenant_id))  # which attaching holds
            file = find_file(session, tenant_id, file_id)
            collection_id = session.scalars(places_of(file_id).limit(1)).one_or_none()
            if collection_id is None:
                session.delete(file)
                note_deletions(session, FileRow, [file_id])
                break
        with suppress(NotFound):  # detached meanwhile
            detach_file(CollectionRef(tenant_id, collection_id, b""), file_id, removal)
    removal.when_changed()
    discard_unnamed(tenant_id, [sha256], removal.database, removal.files)


def entries_by_document(tenant_id: str, document_ids: Sequence[str], database: Database) -> dict[str, StoreEntry]:
    """Documents that are still there, each as its oldest file."""
    return {row[0].id: to_entry(row) for row in database.rows(entries_of_documents(tenant_id, document_ids))}


def to_entry(row: "Row[DocumentRow, str, datetime]") -> StoreEntry:
    document, file_id, moment = row
    return StoreEntry(file_id, view_of(document), moment)


def _attach_all(session: Session, ref: CollectionRef, files: Sequence[Attach], intake: Intake) -> Sequence[str]:
    """Returns the ids of the documents that are to be queued."""
    rows = [find_file(session, ref.tenant_id, file.file_id) for file in files]
    documents = documents_by_hash(ref.collection_id, *(row.sha256 for row in rows))
    session.execute(ids_of(locked(documents)))
    attached = [
        _attach(session, ref, row, file.metadata, intake.index_fingerprint())
        for row, file in zip(rows, files, strict=True)
    ]
    if any(document.created for document in attached):
        check_document_quota(session, ref.tenant_id, intake.settings)
    return list(dict.fromkeys(document.document_id for document in attached if document.is_waiting))


def _attach(
    session: Session, ref: CollectionRef, file: FileRow, attributes: Metadata | None, index_fingerprint: str
) -> Accepted:
    document = session.scalars(documents_by_hash(ref.collection_id, file.sha256)).one_or_none()
    metadata = None if attributes is None else checked(attributes)
    if created := document is None:
        document = insert_document(session, ref, file.name, file, metadata or {})
    else:
        if metadata is not None:
            relabel(session, document, metadata)
        document.is_attachment, document.data_source_id = False, None
        revive(session, document, index_fingerprint)
        session.flush()
    session.merge(AttachmentRow(document_id=document.id, file_id=file.id))
    session.refresh(document)
    return Accepted(document.id, created, document.status is Status.ACCEPTED)


def _find(
    session: Session,
    ref: CollectionRef,
    file_id: str,
    still: Sequence[Condition] = (),
    *,
    lock: bool = False,
) -> "Row[DocumentRow, str, datetime]":
    """The entry of a file of whose document `still` holds; the document for the transaction to change alone with
    `lock`. Raises NotFound."""
    statement = entries_of(ref.tenant_id, ref.collection_id).where(ENTRY_ID.in_((file_id,)), *still)
    statement = statement.with_for_update(of=DocumentRow) if lock else statement
    return row_by_id(session, statement, file_id, "the collection has no file")
