"""Removal of leftovers of crashes, apart from KV: uploads, points of deleted documents, attachments of deleted
mails."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from ragkv.files_io import remove_files
from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.file_store import StoredFile
from ragkv.service.checks.leftovers import abandoned_uploads, stray_points, unnamed_files
from ragkv.service.documents.attachment_statements import places_of_orphans
from ragkv.service.documents.documents import remove_orphans
from ragkv.service.documents.forgetting import forget_answers
from ragkv.service.documents.originals import discard_unnamed
from ragkv.service.documents.removal import Removal

if TYPE_CHECKING:
    from ragkv.retrieve.qdrant import QdrantIndex

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


def clean(database: Database, removal: Removal, server_index: "QdrantIndex | None") -> Cleaned:
    """Remove what killed processes left. Several processes may do it at once, beside any uploads."""
    cutoff = utc_now() - UPLOAD_GRACE
    uploads = abandoned_uploads(cutoff, removal.files)
    remove_files(uploads)
    unnamed = unnamed_files(cutoff, removal.database, removal.files)
    files = discard_files(unnamed, removal)
    strays = stray_points(database, server_index)
    delete_points(strays, server_index)
    return Cleaned(len(uploads), files, len(strays), _remove_all_orphans(removal))


def _remove_all_orphans(removal: Removal) -> int:
    with removal.database.reading() as session:
        places = session.execute(places_of_orphans()).all()
    removed = 0
    for tenant_id, collection_id in places:
        removed += len(remove_orphans(tenant_id, collection_id, removal))
        forget_answers(tenant_id, collection_id, removal)
    return removed


def discard_files(files: Iterable[StoredFile], removal: Removal) -> int:
    """Delete uploaded files that no row names now. Returns how many."""
    return sum(discard_unnamed(*file, removal.database, removal.files) for file in files)


def delete_points(document_ids: Sequence[str], server_index: "QdrantIndex | None") -> None:
    """Delete points of documents from the index server, if there is one."""
    if document_ids and server_index is not None:
        server_index.delete_documents(document_ids)
