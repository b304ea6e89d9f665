"""Files that are uploaded first and attached to collections later: store, list, read."""

from datetime import datetime
from typing import BinaryIO

import msgspec

from ragkv.ids import new_id, utc_now
from ragkv.service.base.database import Database, Session, advisory_lock
from ragkv.service.base.file_store import FileStore, Readable
from ragkv.service.base.page import Page, PageRequest, Position, row_by_id, rows_of
from ragkv.service.base.tables import FileRow
from ragkv.service.documents.intake import check_byte_quota
from ragkv.service.documents.removal import uploads_lock
from ragkv.service.files.statements import FILE_KEYS, files_of
from ragkv.settings import Settings
from ragkv.text import clean_file_name


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file as users see it."""

    id: str
    name: str
    bytes: int
    purpose: str
    created_at: datetime


def keep_file(
    tenant_id: str, name: str, purpose: str, body: Readable, database: Database, settings: Settings, files: FileStore
) -> FileView:
    """Store the bytes under a new id. Equal bytes are stored once, whatever they are files or documents of.

    Raises Rejected for an empty file and TooLarge for more bytes than a file, or all files of a tenant, may have.
    """
    with files.receive(body, settings.max_upload_bytes) as received, database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))
        row = FileRow(
            id=new_id(),
            tenant_id=tenant_id,
            sha256=received.sha256,
            name=clean_file_name(name),
            num_bytes=received.num_bytes,
            purpose=purpose,
            created_at=utc_now(),
        )
        session.add(row)
        check_byte_quota(session, tenant_id, received.num_bytes, settings)
        files.keep(tenant_id, received)
        return file_view_of(row)


def file_view(tenant_id: str, file_id: str, database: Database) -> FileView:
    """The view of a file. Raises NotFound."""
    with database.reading() as session:
        return file_view_of(find_file(session, tenant_id, file_id))


def list_files(tenant_id: str, page: PageRequest, purpose: str | None, database: Database) -> Page[FileView]:
    """A page of a tenant's files. Raises NotFound if the file to begin at does not exist."""
    with database.reading() as session:

        def position_of(file_id: str) -> Position:
            row = find_file(session, tenant_id, file_id)
            return row.created_at, row.id

        rows = rows_of(session, files_of(tenant_id, purpose), FILE_KEYS, page, position_of)
        return Page([file_view_of(row) for (row,) in rows.items], rows.more)


def uploaded_file(tenant_id: str, file_id: str, database: Database, files: FileStore) -> tuple[BinaryIO, str]:
    """(file, name) of an uploaded file, to be closed by the caller. Raises NotFound, also if its bytes are gone."""
    with database.reading() as session:
        row = find_file(session, tenant_id, file_id)
    return files.open(tenant_id, row.sha256), row.name


def find_file(session: Session, tenant_id: str, file_id: str) -> FileRow:
    """The row of a file. Raises NotFound."""
    return row_by_id(session, files_of(tenant_id).where(FileRow.id == file_id), file_id, "there is no file")[0]


def file_view_of(row: FileRow) -> FileView:
    return FileView(id=row.id, name=row.name, bytes=row.num_bytes, purpose=row.purpose, created_at=row.created_at)
