"""Checks of uploaded files against the rows that refer to them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ragkv.files_io import remove_files
from ragkv.service.base.database import Database, advisory_lock
from ragkv.service.base.file_store import GONE, FileStore, StoredFile
from ragkv.service.base.file_tables import FileRow
from ragkv.service.checks.check import ConsistencyCheck, Grace, execute_all
from ragkv.service.checks.cleaning import discard_files
from ragkv.service.checks.consistency_statements import (
    fail_document,
    forget_earlier_files,
    lost_documents,
    lost_earlier_files,
    lost_uploads,
)
from ragkv.service.checks.leftovers import abandoned_uploads, missing_files, unnamed_files
from ragkv.service.documents.originals import uploads_lock

if TYPE_CHECKING:
    from sqlalchemy import Select

_SEPARATOR = "/"


def _without_file(of_file: "Callable[[str, str], Select[str]]", database: Database, files: FileStore) -> Sequence[str]:
    """Ids of the rows, as `of_file` finds them, of every file that is gone."""
    with database.reading() as session:
        missing = missing_files(database, files)
        return [row_id for file in missing for row_id in session.scalars(of_file(*file))]


def _forget(file_ids: Sequence[str], grace: Grace, database: Database, files: FileStore) -> None:
    """Delete uploads whose file is still gone. Documents that were made of them stay."""
    for file_id in file_ids:
        with database.writing() as session:
            file = session.get(FileRow, file_id)
            if file is not None:
                advisory_lock(session, uploads_lock(file.tenant_id))
                if not files.path(file.tenant_id, file.sha256).is_file():
                    session.delete(file)


FILE_CHECKS = (
    ConsistencyCheck(
        "documents_without_file", "documents whose file is gone", "failed, with the reason",
        lambda grace, parts: _without_file(lost_documents, parts.database, parts.files),
        # They answer from their chunks; the same bytes uploaded again bring them back.
        lambda ids, grace, parts: execute_all((change for document_id in ids for change in fail_document(document_id, GONE)), parts.database),
    ),
    ConsistencyCheck(
        "outdated_without_file", "documents that answer from an earlier file, which is gone", "not shown by their pages any more",
        lambda grace, parts: _without_file(lost_earlier_files, parts.database, parts.files),
        lambda ids, grace, parts: execute_all([forget_earlier_files(ids)], parts.database),
    ),
    ConsistencyCheck(
        "uploads_without_file", "uploaded files whose content is gone", "removed",
        lambda grace, parts: _without_file(lost_uploads, parts.database, parts.files),
        lambda names, grace, parts: _forget(names, grace, parts.database, parts.files),
    ),
    ConsistencyCheck(
        "unnamed_files", "files that no document or upload refers to", "removed",
        lambda grace, parts: [_SEPARATOR.join(file) for file in unnamed_files(grace.uploads_before, parts.database, parts.files)],
        lambda names, grace, parts: discard_files([StoredFile(*name.split(_SEPARATOR)) for name in names], parts.removal),
    ),
    ConsistencyCheck(
        "abandoned_uploads", "uploads that were never finished", "removed",
        lambda grace, parts: [path.name for path in abandoned_uploads(grace.uploads_before, parts.files)],
        lambda names, grace, parts: remove_files(abandoned_uploads(grace.uploads_before, parts.files)),
    ),
)  # fmt: skip
