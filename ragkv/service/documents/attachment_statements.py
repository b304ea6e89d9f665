"""Statements about files attached to mails, and the corresponding documents."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Delete, Select, Update, and_, delete, exists, func, select, update
from sqlalchemy.orm import Session, aliased

from ragkv.service.base.lists import one_of
from ragkv.service.base.tables import AttachmentRow, DocumentRow, MailAttachmentRow


def attachments_of(mail_id: str) -> Select[MailAttachmentRow]:
    """Attachments of a document, in order."""
    return select(MailAttachmentRow).where(MailAttachmentRow.mail_id == mail_id).order_by(MailAttachmentRow.ordinal)


def attachments_with_documents(mail_id: str) -> Select[MailAttachmentRow, DocumentRow | None]:
    """(attachment, its document or None), in order."""
    mine = attachments_of(mail_id).outerjoin(DocumentRow, DocumentRow.id == MailAttachmentRow.document_id)
    return mine.add_columns(DocumentRow)


def attached_only_to(mail_id: str) -> Select[DocumentRow]:
    """The documents that came as attachments of this mail alone."""
    other = aliased(MailAttachmentRow)
    mine = exists().where(MailAttachmentRow.document_id == DocumentRow.id, MailAttachmentRow.mail_id == mail_id)
    in_another = exists().where(other.document_id == DocumentRow.id, other.mail_id != mail_id)
    return select(DocumentRow).where(DocumentRow.is_attachment, mine, ~in_another).order_by(DocumentRow.id)


def mails_of(document_id: str) -> Select[str, str]:
    """(id, name) of the mails that a document is attached to, oldest first."""
    statement = select(DocumentRow.id, DocumentRow.name).join(
        MailAttachmentRow, MailAttachmentRow.mail_id == DocumentRow.id
    )
    return statement.where(MailAttachmentRow.document_id == document_id).order_by(
        DocumentRow.created_at, DocumentRow.id
    )


def forget_attachments(mail_id: str, hashes: Sequence[str]) -> Delete:
    """Attachments of a mail with these hashes. Their documents stay, if only as orphans."""
    mine = (MailAttachmentRow.mail_id == mail_id, one_of(MailAttachmentRow.sha256, hashes))
    return delete(MailAttachmentRow).where(*mine)


def is_in_mail() -> ColumnElement[bool]:
    """Whether a mail has the document attached."""
    return exists().where(MailAttachmentRow.document_id == DocumentRow.id)


def is_orphan() -> ColumnElement[bool]:
    """Whether a document came as an attachment alone, and no mail has it any longer."""
    return and_(DocumentRow.is_attachment, ~is_in_mail())


def leave_to_mails(document_ids: Sequence[str]) -> Update:
    """Documents that lost a data source or an attached file, and that mails alone have now, go with the last of
    these."""
    is_file = exists().where(AttachmentRow.document_id == DocumentRow.id)
    theirs = (one_of(DocumentRow.id, document_ids), is_in_mail(), ~DocumentRow.was_uploaded, ~is_file)
    return update(DocumentRow).where(*theirs).values(is_attachment=True, data_source_id=None, origin=None)


def orphans_in(collection_id: str) -> Select[str]:
    """Ids of a collection's orphans."""
    return select(DocumentRow.id).where(DocumentRow.collection_id == collection_id, is_orphan())


def places_of_orphans() -> Select[str, str]:
    """(tenant, collection) of all orphans."""
    return select(DocumentRow.tenant_id, DocumentRow.collection_id).where(is_orphan()).distinct()


def uploads_of(session: Session, document_id: str, most: int) -> tuple[int, Sequence[str]]:
    """The number of mails that a document lies in, one within the other, and the outermost: the ids of the document
    itself, with 0, if it was uploaded. No more than `most`, and then no ids."""
    ids: Sequence[str] = [document_id]
    for depth in range(most):
        uploaded = select(DocumentRow.id).where(one_of(DocumentRow.id, ids), ~DocumentRow.is_attachment)
        uploads = session.scalars(uploaded).all()
        if uploads or not ids:
            return depth, uploads
        above = select(MailAttachmentRow.mail_id).where(one_of(MailAttachmentRow.document_id, ids))
        ids = session.scalars(above.distinct()).all()
    return most, ()


def num_attachments_in(document_id: str) -> Select[int]:
    """The number of attachments of an uploaded document on all levels. What was uploaded itself has its own."""
    columns = (MailAttachmentRow.mail_id, MailAttachmentRow.sha256, MailAttachmentRow.document_id)
    inside = select(*columns).where(MailAttachmentRow.mail_id == document_id).cte(recursive=True)
    deeper = (
        select(*columns)
        .join(DocumentRow, DocumentRow.id == MailAttachmentRow.mail_id)
        .join(inside, inside.c.document_id == DocumentRow.id)
        .where(DocumentRow.is_attachment)
    )
    return select(func.count()).select_from(inside.union(deeper))
