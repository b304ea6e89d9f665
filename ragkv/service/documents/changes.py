"""Changes to a document: new name, metadata or file, also of one made of a path; and a retry after a failure."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ragkv.errors import Conflict, NotFound
from ragkv.file_types import is_read, suffix_of
from ragkv.ids import batched
from ragkv.service.base.database import Condition, Database, Session, advisory_lock
from ragkv.service.base.file_store import Readable, Received
from ragkv.service.base.long_work import in_batches
from ragkv.service.base.queue import Queue
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow, IngestedPathRow
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.collections.statements import collection_changed, mark_changed_document
from ragkv.service.documents.documents import (
    DocumentView,
    delete_documents,
    document_view,
    find_document,
    is_waiting,
    relabel,
    revive,
    store_document,
    view_of,
)
from ragkv.service.documents.intake import Intake, check_byte_quota
from ragkv.service.documents.job_statements import INGEST, new_job
from ragkv.service.documents.metadata import Metadata, checked, patched
from ragkv.service.documents.removal import Removal, discard_unnamed, forget_answers, uploads_lock
from ragkv.service.documents.requeue import QUEUED_AT_ONCE, enqueue
from ragkv.service.documents.statements import (
    NOT_REPLACED,
    among,
    documents_by_hash,
    documents_where,
    ids_of,
    locked,
    number_of,
    start_over,
)
from ragkv.service.files.statements import document_of_path, forget_attachments_of, forget_paths_of, is_of_path_alone
from ragkv.text import clean_file_name

if TYPE_CHECKING:
    from sqlalchemy import Select, Update

    from ragkv.settings import Settings

EarlierOutcome = Literal["none", "replaced", "kept"]
"""The text made of the same path earlier: there is none, or the same; it is replaced; it stays, because other paths, an
attached file, a data source or a mail have its document too."""


class Queued(msgspec.Struct, frozen=True):
    """The result of queueing documents."""

    documents: Annotated[int, "Number of documents that were queued."]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A document with another file. is_new: the bytes are others than before."""

    view: DocumentView
    is_new: bool


@dataclass(frozen=True, slots=True)
class StoredPath:
    """The document of a path, and the outcome for the earlier one."""

    document_id: str
    earlier: EarlierOutcome


def amend_document(
    tenant_id: str, document_id: str, database: Database, name: str | None = None, patch: Metadata | None = None
) -> DocumentView:
    """Rename a document, merge a patch into its metadata and that of its attachments (`relabel`). Raises NotFound,
    Rejected for too much metadata."""
    with database.writing() as session:
        if patch is not None:
            advisory_lock(session, uploads_lock(tenant_id))
        document = find_document(session, tenant_id, document_id, lock=True)
        if name is not None:
            old_suffix = document.suffix or suffix_of(document.name)
            document.name = clean_file_name(name)
            document.suffix = "" if is_read(document.name) else old_suffix
        if patch is not None:
            relabel(session, document, checked(patched(document.labels, patch)))
        session.flush()
        session.execute(collection_changed(document.collection_id))
        if name is not None:
            session.execute(mark_changed_document(document_id))
        return view_of(document)


def replace_document(
    tenant_id: str, document_id: str, name: str, body: Readable, intake: Intake, removal: Removal
) -> DocumentView:
    """`exchange_file`, by an upload, then queue the document: it no longer goes with the mails, files, paths or data
    source that it came from."""
    view = exchange_file(tenant_id, document_id, name, body, intake, removal).view
    if is_waiting(view):
        enqueue(document_id, intake.queue)
    return view


def exchange_file(
    tenant_id: str,
    document_id: str,
    name: str | None,
    body: Readable,
    intake: Intake,
    removal: Removal,
    still: Condition | None = None,
) -> Exchanged:
    """Give a document another file, to be ingested by the caller or once it is queued. It answers from the old file,
    which is kept as long, until the new one is searchable.

    name: that of an upload; None for a file of a data source or path, whose document keeps its name. still: a condition
    on the document, asked under the lock that uploads hold. The same bytes are read again only as `revive` says.
    Raises NotFound, Conflict if another document of the collection has these bytes or `still` does not hold, and like
    `accept_document` Rejected and TooLarge.
    """
    receiving = intake.files.receive(body, intake.settings.max_upload_bytes)
    with receiving as received, intake.database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))
        # A worker that stores this document's text holds its row: what it answers from is known when it has committed.
        document = find_document(session, tenant_id, document_id, lock=True)
        if still is not None:
            this = among(documents_where(tenant_id, document.collection_id), [document_id])
            if session.scalars(this.where(still)).one_or_none() is None:
                raise Conflict("the document changed in the meantime")
        old_name = document.name
        if name is not None:
            document.name, document.suffix = clean_file_name(name), ""
            document.is_attachment, document.was_uploaded, document.data_source_id = False, True, None
            session.execute(forget_paths_of(document_id))
        old = document.sha256
        is_new = old != received.sha256
        if is_new:
            _exchange(session, document, received, old_name, intake.settings)
        else:
            revive(session, document, intake.index_fingerprint())
        intake.files.keep(tenant_id, received)
        if is_new or document.name != old_name:
            session.execute(collection_changed(document.collection_id))
            session.execute(mark_changed_document(document_id))
    removal.when_changed()
    view = document_view(tenant_id, document_id, intake.database)
    if is_new:
        discard_unnamed(tenant_id, [old], intake.database, intake.files)  # unless the text is of it
        forget_answers(tenant_id, view.collection_id, removal)
    return Exchanged(view, is_new)


def store_path(ref: CollectionRef, path: Path, intake: Intake, removal: Removal) -> StoredPath:
    """`store_document`, of the file at a path, in place of the document that was made of this path before. To be
    ingested by the caller. Raises like `store_document`, and OSError."""
    path_sha256 = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()  # noqa: PTH100 - `..` counts, links do not
    earlier_id = intake.database.scalar(document_of_path(ref.collection_id, path_sha256))
    if earlier_id is not None:
        with path.open("rb") as body, suppress(Conflict, NotFound):
            alone = is_of_path_alone(path_sha256)
            is_new = exchange_file(ref.tenant_id, earlier_id, None, body, intake, removal, alone).is_new
            return StoredPath(earlier_id, "replaced" if is_new else "none")
    with path.open("rb") as body:
        document_id = store_document(ref, path.name, body, intake, by_path=True).document_id
    outcome: EarlierOutcome = "none"
    if earlier_id is not None and earlier_id != document_id:
        still = is_of_path_alone(path_sha256)
        deleted = delete_documents(ref.tenant_id, ref.collection_id, [earlier_id], removal, still)
        outcome = "replaced" if deleted else "kept"
    with intake.database.writing() as session:
        session.merge(
            IngestedPathRow(collection_id=ref.collection_id, path_sha256=path_sha256, document_id=document_id)
        )
    return StoredPath(document_id, outcome)


def retry_document(tenant_id: str, document_id: str, database: Database, queue: Queue) -> DocumentView:
    """Queue a failed document again. Raises NotFound, Conflict for one that did not fail."""
    with database.writing() as session:
        document = find_document(session, tenant_id, document_id, lock=True)
        if document.status is not Status.FAILED:
            raise Conflict(f"the document is {document.status}: only failed documents can be retried")
        _begin_again(session, document)
    enqueue(document_id, queue)
    return document_view(tenant_id, document_id, database)


def retry_failed(ref: CollectionRef, database: Database, queue: Queue) -> Queued:
    """Queue every failed document of a collection again, with fresh attempts."""
    documents = documents_where(ref.tenant_id, ref.collection_id, Status.FAILED)
    return queue_again(documents, start_over, INGEST, database, queue)


def queue_again(
    documents: "Select[DocumentRow]", again: "Callable[..., Update]", kind: str, database: Database, queue: Queue
) -> Queued:
    """Queue documents again, each with a job of a kind. again: the statement that changes those with these ids, which
    `documents` then matches no more.

    QUEUED_AT_ONCE messages are sent now, the others by the next sweep.
    """
    batches = batched(database.scalars(ids_of(documents)))
    queued: list[str] = []

    def batch() -> int:
        if not (ids := next(batches, ())):
            return 0
        with database.writing() as session:
            still = locked(among(documents, ids))
            owners = dict(session.execute(still.with_only_columns(DocumentRow.id, DocumentRow.tenant_id)).all())
            session.execute(again(*owners))
            session.add_all(new_job(tenant_id, document_id, kind) for document_id, tenant_id in owners.items())
        queued.extend(owners)
        return len(ids)

    in_batches(batch)
    for document_id in queued[:QUEUED_AT_ONCE]:
        enqueue(document_id, queue)
    return Queued(len(queued))


def failures(ref: CollectionRef, database: Database) -> int:
    """The number of a collection's failed documents."""
    return database.scalar(number_of(documents_where(ref.tenant_id, ref.collection_id, Status.FAILED))) or 0


def _exchange(session: Session, document: DocumentRow, received: Received, old_name: str, settings: "Settings") -> None:
    twin = session.scalars(documents_by_hash(document.collection_id, received.sha256)).one_or_none()
    if twin is not None:
        raise Conflict(f"document {twin.id} of the same collection has the same bytes: delete one of the two")
    if document.earlier_sha256 == received.sha256:
        for name, value in NOT_REPLACED.items():
            setattr(document, name, value)
    elif document.num_chunks and not document.is_replaced:
        document.is_replaced, document.earlier_name = True, old_name
        document.earlier_sha256, document.earlier_num_bytes = document.sha256, document.num_bytes
    document.sha256, document.num_bytes = received.sha256, received.num_bytes
    check_byte_quota(session, document.tenant_id, received.num_bytes, settings)
    session.execute(forget_attachments_of(document.id))
    _begin_again(session, document)


def _begin_again(session: Session, document: DocumentRow) -> None:
    """Queue a document from the start. A worker that holds its lease loses it."""
    session.flush()
    session.execute(start_over(document.id))
    session.add(new_job(document.tenant_id, document.id, INGEST))
