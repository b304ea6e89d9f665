"""Statements about the paths of files that documents were made of on the command line."""

from sqlalchemy import ColumnElement, Delete, Select, and_, delete, exists, select

from ragkv.service.base.file_tables import AttachmentRow, IngestedPathRow
from ragkv.service.base.tables import DocumentRow
from ragkv.service.data_sources.statements import is_in_data_source
from ragkv.service.documents.attachment_statements import is_in_mail


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
