"""Removal of what `ragkv.upkeep.leftovers` finds beside KV: files of uploads, points of deleted documents."""

from datetime import timedelta

import msgspec

from ragkv.catalog.originals import discard_unnamed
from ragkv.clock import utc_now
from ragkv.parts import Parts
from ragkv.upkeep.leftovers import abandoned_uploads, stray_points, unnamed_files

UPLOAD_GRACE = timedelta(hours=1)
"""An upload that was not written to for so long has no process any more."""


class Cleaned(msgspec.Struct, frozen=True):
    """Numbers of what was removed: unfinished uploads, files that no row named, points of deleted documents."""

    uploads: int
    files: int
    documents: int

    def __bool__(self) -> bool:
        return bool(self.uploads or self.files or self.documents)


def clean(parts: Parts) -> Cleaned:
    """Remove what killed processes left. Several processes may do it at once, beside any uploads."""
    before = utc_now() - UPLOAD_GRACE
    uploads = abandoned_uploads(before, parts.files)
    for path in uploads:
        path.unlink(missing_ok=True)
    unnamed = unnamed_files(before, parts.database, parts.files)
    files = sum(discard_unnamed(*file, parts.database, parts.files) for file in unnamed)
    strays = stray_points(parts)
    if strays and parts.server_index is not None:
        parts.server_index.delete_documents(strays)
    return Cleaned(len(uploads), files, len(strays))
