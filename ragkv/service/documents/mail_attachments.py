"""Files attached to mails: separate documents in the same collection, linked to their mail in both directions."""

import hashlib
import io
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from ragkv.errors import Conflict, Rejected, TooLarge
from ragkv.observe.logs import request_id
from ragkv.service.audit.log import Change, add_change
from ragkv.service.base.database import Database, Session, advisory_lock
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow, MailAttachmentRow
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.collections.statements import collection_changed
from ragkv.service.documents.attachment_statements import (
    attachments_of,
    attachments_with_documents,
    forget_attachments,
    mails_of,
    num_attachments_in,
    uploads_of,
)
from ragkv.service.documents.documents import (
    DocumentView,
    find_document,
    insert_document,
    remove_orphans,
    revive,
    view_of,
)
from ragkv.service.documents.intake import Intake, check_quota
from ragkv.service.documents.removal import Removal, uploads_lock
from ragkv.service.documents.statements import documents_by_hash, locked

MAX_DEPTH = 5
"""Mails within mails: what lies deeper is no document."""
MAX_IN_UPLOAD = 2_000
"""Attachments of one uploaded document, those of mails within it included."""
WORKER = "worker"
"""The client of changes that follow from an upload."""


class AttachmentView(msgspec.Struct, frozen=True, kw_only=True):
    """A file attached to a mail: its document, or why there is none."""

    name: Annotated[str, "Name of the attached file."]
    bytes: Annotated[int, "Size of the file in bytes."]
    document_id: Annotated[
        str | None, "Id of its document; null if the document was deleted, or could not be created: see `error`."
    ]
    status: Annotated[Status | None, "Status of its document; null without one."]
    error: Annotated[str | None, "Reason why the file could not be read, or why it has no document."]


class MailView(msgspec.Struct, frozen=True):
    """A mail that a document is attached to."""

    id: str
    name: Annotated[str, "Name of the mail."]


class DocumentDetail(DocumentView, frozen=True, kw_only=True):
    """A document with what is attached to it, and the mails that it is attached to."""

    attachments: Annotated[
        list[AttachmentView],
        "Files attached to the document, if it is a mail, in order. Each is a document of the same collection.",
    ]
    attached_to: Annotated[list[MailView], "Mails that the document is attached to, oldest first."]


class _NoMore(TooLarge):
    """Neither the file nor any other of the mail can be kept."""


class _MailPlace(NamedTuple):
    """The place of a mail: the number of mails around it, and the ids of the uploaded ones."""

    depth: int
    uploads: Sequence[str]


class _File(NamedTuple):
    ordinal: int
    name: str
    body: bytes


def document_detail(tenant_id: str, document_id: str, database: Database) -> DocumentDetail:
    """A document with its attachments and the mails it came with. Raises NotFound."""
    with database.reading() as session:
        view = view_of(find_document(session, tenant_id, document_id))
        attachments = [
            AttachmentView(
                name=row.name if document is None else document.name,
                bytes=row.num_bytes,
                document_id=row.document_id,
                status=None if document is None else document.status,
                error=row.error if document is None else document.error,
            )
            for row, document in session.execute(attachments_with_documents(document_id))
        ]
        mails = [MailView(*row) for row in session.execute(mails_of(document_id))]
    return DocumentDetail(**msgspec.structs.asdict(view), attachments=attachments, attached_to=mails)


def settle_attachments(
    document: DocumentRow, attached: Iterable[tuple[str, bytes]], intake: Intake, removal: Removal
) -> list[str]:
    """Make documents of the files (name, body) that a document has attached now, with its metadata.

    Returns the ids of new ones, which are to be queued. Bytes that the collection has are the same document. One that
    cannot be kept is noted with the reason, of those that are too many or too deep the first; one that was deleted
    since stays so, and those of a file that the document had before go: repeated, it changes nothing. Raises Conflict
    if the document is gone, or has another file now.
    """
    files: dict[str, _File] = {}
    for ordinal, (name, body) in enumerate(attached):
        files.setdefault(hashlib.sha256(body).hexdigest(), _File(ordinal, name, body))
    with intake.database.reading() as session:
        rows = {row.sha256: row for row in session.scalars(attachments_of(document.id))}
        place = _MailPlace(*uploads_of(session, document.id, MAX_DEPTH)) if files else _MailPlace(0, ())
    if not files and not rows:
        return []
    ref = collection_ref(document.tenant_id, document.collection_id, intake.database)
    due = [sha256 for sha256 in files if sha256 not in rows or rows[sha256].error is not None]
    new = list[str]()
    for number, sha256 in enumerate(due, start=1):
        try:
            new.append(_accept(ref, document, files[sha256], place, intake, is_known=sha256 in rows))
        except Rejected as refusal:
            is_last = isinstance(refusal, _NoMore)
            more = f" (so are {len(due) - number:,} more files of this mail)" if is_last and number < len(due) else ""
            with intake.database.writing() as session:
                _check_unchanged(session, document)
                _note(session, document, sha256, files[sha256], error=f"{refusal}{more}")
            if is_last:
                break
    if removed := list(rows.keys() - files.keys()):
        with intake.database.writing() as session:
            _check_unchanged(session, document)
            session.execute(forget_attachments(document.id, removed))
        remove_orphans(document.tenant_id, document.collection_id, removal)
    return new


def waiting_attachments(mail_id: str, database: Database) -> Sequence[str]:
    """Ids of a mail's attachments that have not been read."""
    rows = database.rows(attachments_with_documents(mail_id))
    return [document.id for _, document in rows if document is not None and document.status is Status.ACCEPTED]


def _accept(
    ref: CollectionRef, mail: DocumentRow, file: _File, place: _MailPlace, intake: Intake, *, is_known: bool
) -> str:
    """The id of the document. Raises Rejected if it cannot be kept. is_known: it is among the mail's attachments."""
    if place.depth == MAX_DEPTH:
        raise _NoMore(f"it is nested more than {MAX_DEPTH} mails deep: upload it separately")
    with (
        intake.files.receive(io.BytesIO(file.body), intake.settings.max_upload_bytes) as received,
        intake.database.writing() as session,
    ):
        labels = _check_unchanged(session, mail).labels
        fewest = min((session.scalar(num_attachments_in(upload)) or 0 for upload in place.uploads), default=0)
        if fewest - is_known >= MAX_IN_UPLOAD:  # none of the uploaded documents may have another attachment
            raise _NoMore(
                f"the uploaded mail has more than {MAX_IN_UPLOAD:,} attachments, those of mails within it included: "
                "upload it separately"
            )
        document = session.scalars(locked(documents_by_hash(mail.collection_id, received.sha256))).one_or_none()
        if created := document is None:
            document = insert_document(session, ref, file.name, received, labels, is_attachment=True)
            check_quota(session, mail.tenant_id, received.num_bytes, intake.settings)
            addition = Change(
                tenant_id=mail.tenant_id,
                key_id=None,
                action="Add an attachment",
                route="",
                client=WORKER,
                resources=(document.id,),
                within=mail.id,
                request_id=request_id(),
            )
            add_change(session, addition)
        else:
            revive(session, document, intake.index_fingerprint())
        _note(session, mail, received.sha256, file, document_id=document.id)
        if created:
            session.execute(collection_changed(ref.collection_id))
        intake.files.keep(mail.tenant_id, received)
        return document.id


def _check_unchanged(session: Session, mail: DocumentRow) -> DocumentRow:
    """Hold the lock under which files are replaced and metadata changes. Returns the mail as it is now. Raises Conflict
    unless it still has the file that was read."""
    advisory_lock(session, uploads_lock(mail.tenant_id))
    present = session.get(DocumentRow, mail.id)
    if present is None or present.sha256 != mail.sha256:
        raise Conflict(f"document {mail.id} was {'deleted' if present is None else 'replaced'}")
    return present


def _note(
    session: Session,
    mail: DocumentRow,
    sha256: str,
    file: _File,
    document_id: str | None = None,
    error: str | None = None,
) -> None:
    row = MailAttachmentRow(
        mail_id=mail.id,
        sha256=sha256,
        tenant_id=mail.tenant_id,
        ordinal=file.ordinal,
        name=file.name,
        num_bytes=len(file.body),
        document_id=document_id,
        error=error,
    )
    session.merge(row)
