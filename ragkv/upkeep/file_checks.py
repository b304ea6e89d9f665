"""Uploaded files held against the rows that name them."""

from collections.abc import Iterable, Sequence

from ragkv.catalog.originals import discard_unnamed, uploads_lock
from ragkv.db.consistency import fail_document, lost_documents, lost_uploads
from ragkv.db.database import advisory_lock
from ragkv.db.file_tables import FileRow
from ragkv.files import GONE, StoredFile
from ragkv.parts import Parts
from ragkv.upkeep.check import Check, Grace
from ragkv.upkeep.leftovers import abandoned_uploads, missing_files, unnamed_files

_SEPARATOR = "/"


def documents_without_file(grace: Grace, parts: Parts) -> Iterable[str]:
    """Documents whose file is gone, failed ones aside."""
    with parts.database.reading() as session:
        return [
            found
            for file in missing_files(parts.database, parts.files)
            for found in session.scalars(lost_documents(*file))
        ]


def uploads_without_file(grace: Grace, parts: Parts) -> Iterable[str]:
    with parts.database.reading() as session:
        return [
            found
            for file in missing_files(parts.database, parts.files)
            for found in session.scalars(lost_uploads(*file))
        ]


def _fail(document_ids: Sequence[str], grace: Grace, parts: Parts) -> None:
    """Fail documents. They answer from their chunks; the same bytes uploaded again bring them back."""
    with parts.database.writing() as session:
        for document_id in document_ids:
            for statement in fail_document(document_id, GONE):
                session.execute(statement)


def _forget(file_ids: Sequence[str], grace: Grace, parts: Parts) -> None:
    """Delete uploads whose file is still gone. Documents that were made of them stay."""
    for file_id in file_ids:
        with parts.database.writing() as session:
            file = session.get(FileRow, file_id)
            if file is not None:
                advisory_lock(session, uploads_lock(file.tenant_id))
                if not parts.files.path(file.tenant_id, file.sha256).is_file():
                    session.delete(file)


def _discard(names: Sequence[str], grace: Grace, parts: Parts) -> None:
    for name in names:
        discard_unnamed(*StoredFile(*name.split(_SEPARATOR)), parts.database, parts.files)


def _remove_abandoned(names: Sequence[str], grace: Grace, parts: Parts) -> None:
    for path in abandoned_uploads(grace.uploads_before, parts.files):
        path.unlink(missing_ok=True)


FILE_CHECKS = (
    Check(
        "documents_without_file", "documents whose file is gone", "failed, with the reason",
        documents_without_file, _fail,
    ),
    Check("uploads_without_file", "uploaded files whose bytes are gone", "removed", uploads_without_file, _forget),
    Check(
        "unnamed_files", "files that no document and no upload names", "removed",
        lambda grace, parts: [_SEPARATOR.join(file) for file in unnamed_files(grace.uploads_before, parts.database, parts.files)], _discard,
    ),
    Check(
        "abandoned_uploads", "uploads that were never finished", "removed",
        lambda grace, parts: [path.name for path in abandoned_uploads(grace.uploads_before, parts.files)], _remove_abandoned,
    ),
)  # fmt: skip
