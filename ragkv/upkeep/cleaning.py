"""Removal of leftovers of crashes, apart from KV: uploads, points of deleted documents, attachments of deleted
mails."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from ragkv.catalog.documents import remove_orphans
from ragkv.catalog.forgetting import forget_answers
from ragkv.catalog.originals import discard_unnamed
from ragkv.db.mail_attachments import places_of_orphans
from ragkv.files import StoredFile
from ragkv.ids import utc_now
from ragkv.parts import Parts
from ragkv.upkeep.leftovers import abandoned_uploads, stray_points, unnamed_files

UPLOAD_GRACE = timedelta(hours=1)
"""Time after its last write when an upload is taken as abandoned by its process."""


class Cleaned(msgspec.Struct, frozen=True):
    """Numbers of what was removed: unfinished uploads, files that no row named, points of deleted documents,
    attachments of deleted mails."""

    uploads: int
    files: int
    documents: int
    attachments: int

    def __bool__(self) -> bool:
        return bool(self.uploads or self.files or self.documents or self.attachments)


def clean(parts: Parts) -> Cleaned:
    """Remove what killed processes left. Several processes may do it at once, beside any uploads."""
    cutoff = utc_now() - UPLOAD_GRACE
    uploads = abandoned_uploads(cutoff, parts.removal.files)
    remove_files(uploads)
    unnamed = unnamed_files(cutoff, parts.removal.database, parts.removal.files)
    files = discard_files(unnamed, parts)
    strays = stray_points(parts)
    delete_points(strays, parts)
    return Cleaned(len(uploads), files, len(strays), _remove_all_orphans(parts))


def _remove_all_orphans(parts: Parts) -> int:
    with parts.removal.database.reading() as session:
        places = session.execute(places_of_orphans()).all()
    removed = 0
    for tenant_id, collection_id in places:
        removed += len(remove_orphans(tenant_id, collection_id, parts))
        forget_answers(tenant_id, collection_id, parts)
    return removed


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files. Another process may remove them at the same time."""
    for path in paths:
        path.unlink(missing_ok=True)


def discard_files(files: Iterable[StoredFile], parts: Parts) -> int:
    """Delete uploaded files that no row names now. Returns how many."""
    return sum(discard_unnamed(*file, parts.removal.database, parts.removal.files) for file in files)


def delete_points(document_ids: Sequence[str], parts: Parts) -> None:
    """Delete points of documents from the index server, if there is one."""
    if document_ids and parts.server_index is not None:
        parts.server_index.delete_documents(document_ids)
