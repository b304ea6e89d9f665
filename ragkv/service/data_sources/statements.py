"""Statements about data sources and their files."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, and_, case, delete, exists, func, or_, select, update
from sqlalchemy.orm import aliased
from sqlalchemy.sql.dml import ReturningDelete

from ragkv.service.base.database import has_come
from ragkv.service.base.lists import one_of
from ragkv.service.base.status import Status
from ragkv.service.base.tables import AttachmentRow, DataSourceFileRow, DataSourceRow, DocumentRow
from ragkv.service.data_sources.location import location_of
from ragkv.service.documents.attachment_statements import is_in_mail
from ragkv.text import clean_file_name


class FileStatus(StrEnum):
    """Status of a data source's file: of its document, or unreadable if none could be made from it."""

    WAITING = "waiting"
    SEARCHABLE = "searchable"
    READY = "ready"
    FAILED = "failed"
    UNREADABLE = "unreadable"


LEASE = timedelta(seconds=120)
"""Longer than an object may take to come."""
LONGEST_LEASE = 2 * LEASE
"""Leases that end later were taken by a clock that ran ahead. One that is put back a little takes none away."""
LONGEST_INTERVAL = timedelta(days=7)

_STATUS: ColumnElement[str] = case(
    (DataSourceFileRow.error.is_not(None), FileStatus.UNREADABLE.value),
    (DocumentRow.status == Status.FAILED, FileStatus.FAILED.value),
    (DocumentRow.status == Status.SEARCHABLE, FileStatus.SEARCHABLE.value),
    (DocumentRow.status == Status.READY, FileStatus.READY.value),
    else_=FileStatus.WAITING.value,
)

_SYNCED = (DocumentRow.data_source_id.is_not(None), ~DocumentRow.was_uploaded)


def data_sources_of(tenant_id: str) -> Select[DataSourceRow]:
    """A tenant's data sources, oldest first."""
    mine = DataSourceRow.tenant_id == tenant_id
    return select(DataSourceRow).where(mine).order_by(DataSourceRow.created_at, DataSourceRow.id)


def files_by_status(data_source_ids: Sequence[str]) -> Select[str, str, int]:
    """(data source, status, files)."""
    joined = _files_with_documents(DataSourceFileRow.data_source_id, _STATUS.label("file_status"), func.count())
    mine = one_of(DataSourceFileRow.data_source_id, data_source_ids)
    return joined.where(mine).group_by(DataSourceFileRow.data_source_id, "file_status")


def files_in(data_source_id: str, status: FileStatus | None = None) -> Select[DataSourceFileRow, str, str | None]:
    """(file, its status, why its document failed)."""
    joined = _files_with_documents(DataSourceFileRow, _STATUS.label("file_status"), DocumentRow.error)
    statement = joined.where(DataSourceFileRow.data_source_id == data_source_id)
    return statement if status is None else statement.where(_STATUS.in_([status.value]))


def due_data_source(moment: datetime) -> Select[str]:
    """Ids of data sources to sync now, the longest due first; those of tenants that have none in work before others."""
    other = aliased(DataSourceRow)
    is_served = exists().where(
        other.tenant_id == DataSourceRow.tenant_id, ~has_come(other.lease_until, moment, LONGEST_LEASE)
    )
    due = select(DataSourceRow.id).where(is_due(moment), has_come(DataSourceRow.lease_until, moment, LONGEST_LEASE))
    return due.order_by(is_served, DataSourceRow.next_at, DataSourceRow.id)


def is_due(moment: datetime) -> ColumnElement[bool]:
    """Whether a worker is to sync a data source."""
    is_scheduled = (DataSourceRow.next_at.is_not(None), ~DataSourceRow.paused)
    return and_(*is_scheduled, has_come(DataSourceRow.next_at, moment, LONGEST_INTERVAL))


def watched_data_sources() -> Select[DataSourceRow]:
    """The data sources whose folders are to be watched: the oldest of each tenant, then the second of each, and so
    on."""
    by_age = (DataSourceRow.created_at, DataSourceRow.id)
    turn = func.row_number().over(partition_by=DataSourceRow.tenant_id, order_by=by_age)
    is_watched = (DataSourceRow.watch, ~DataSourceRow.paused)
    return select(DataSourceRow).where(*is_watched).order_by(turn, *by_age)


def data_source_changed(data_source_id: str, moment: datetime) -> Update:
    """Make a sync due, if none is: also one after the running sync."""
    is_waiting = and_(DataSourceRow.next_at <= moment, DataSourceRow.lease_until.is_(None))
    mine = (DataSourceRow.id == data_source_id, DataSourceRow.watch, ~DataSourceRow.paused)
    return update(DataSourceRow).where(*mine, or_(DataSourceRow.next_at.is_(None), ~is_waiting)).values(next_at=moment)


def note_watch(data_source_id: str, error: str | None) -> Update:
    """Whether its folder is watched: the reason if it cannot be."""
    return update(DataSourceRow).where(DataSourceRow.id == data_source_id).values(watch_error=error)


def claim_data_source(data_source_id: str, owner: str, moment: datetime) -> Update:
    """Begin a sync. Changes no row while another process holds the lease."""
    begun: dict[str, Any] = {"syncs": DataSourceRow.syncs + 1, "next_at": moment, "listed": 0, "skipped": 0}
    held = {"lease_owner": owner, "lease_until": moment + LEASE}
    mine = (DataSourceRow.id == data_source_id, has_come(DataSourceRow.lease_until, moment, LONGEST_LEASE))
    return update(DataSourceRow).where(*mine).values(**begun, **held)


def schedule_of(data_source_id: str) -> Select[int, datetime | None]:
    """(minutes between syncs, when the next is due)."""
    return select(DataSourceRow.interval_minutes, DataSourceRow.next_at).where(DataSourceRow.id == data_source_id)


def confirmed_since(number: int) -> ColumnElement[int]:
    """The deletions that were confirmed since there were `number`; 0 if none were."""
    confirmed = DataSourceRow.confirmed_deletions
    return case((confirmed == number, 0), else_=confirmed)


def number_of_files(data_source_id: str) -> Select[int]:
    return select(func.count()).where(DataSourceFileRow.data_source_id == data_source_id)


def number_of_files_lost(data_source_id: str, sync: int) -> Select[int]:
    """Files that the sync did not list, but for those that it listed under another name."""
    other = aliased(DataSourceFileRow)
    is_renamed = exists().where(
        other.data_source_id == data_source_id,
        other.document_id == DataSourceFileRow.document_id,
        other.seen_in == sync,
    )
    return number_of_files(data_source_id).where(DataSourceFileRow.seen_in < sync, ~is_renamed)


def forget_failed_versions(data_source_id: str) -> Update:
    """Let the next sync read all files again that are unreadable, or whose documents failed."""
    failed = exists().where(DocumentRow.id == DataSourceFileRow.document_id, DocumentRow.status == Status.FAILED)
    mine = DataSourceFileRow.data_source_id == data_source_id
    return update(DataSourceFileRow).where(mine, or_(DataSourceFileRow.error.is_not(None), failed)).values(version="")


def other_files_of(document_id: str, data_source_id: str, keys: Sequence[str]) -> Select[DataSourceFileRow]:
    """Files of the same bytes: those of the document but for some of one data source."""
    these = and_(DataSourceFileRow.data_source_id == data_source_id, one_of(DataSourceFileRow.key, keys))
    return select(DataSourceFileRow).where(DataSourceFileRow.document_id == document_id, ~these)


def files_that_keep(document_id: str) -> Select[DataSourceFileRow, str]:
    """(file, its data source's location) of files with the document's bytes; none while it is an uploaded or an
    attached file too."""
    is_file = exists().where(AttachmentRow.document_id == DocumentRow.id)
    return (
        select(DataSourceFileRow, DataSourceRow.location)
        .join(DataSourceRow, DataSourceRow.id == DataSourceFileRow.data_source_id)
        .join(DocumentRow, DocumentRow.id == DataSourceFileRow.document_id)
        .where(DocumentRow.id == document_id, ~DocumentRow.was_uploaded, ~is_file)
    )


def is_in_data_source() -> ColumnElement[bool]:
    """Whether a file of a data source has the document's bytes."""
    return exists().where(DataSourceFileRow.document_id == DocumentRow.id)


def attribute(document: DocumentRow, file: DataSourceFileRow, location: str) -> bool:
    """`move` to a file of a data source at this location."""
    return move(document, file.data_source_id, location_of(location).of_file(file.key))


def move(document: DocumentRow, data_source_id: str, place: str) -> bool:
    """Say that a document comes from a data source's file at this place from now on, and call it like the file unless
    it was renamed. Returns whether its name changed: then `collection_changed` belongs at the end of the
    transaction."""
    old_name, old_place = document.name, document.origin
    document.data_source_id, document.origin = data_source_id, place
    if old_place is not None and old_name == clean_file_name(old_place):
        document.name = clean_file_name(place)
    return document.name != old_name


def documents_synced(document_ids: Sequence[str]) -> Select[DocumentRow]:
    """The documents that exist only through the data source."""
    return select(DocumentRow).where(one_of(DocumentRow.id, document_ids), *_SYNCED)


def is_kept_by(data_source_id: str) -> ColumnElement[bool]:
    """Whether a document exists only through this data source, or through one that is gone: no mail has it either."""
    is_gone = ~exists().where(DataSourceRow.id == DocumentRow.data_source_id)
    mine = or_(DocumentRow.data_source_id == data_source_id, is_gone)
    return and_(*_SYNCED, mine, ~is_in_mail())


def documents_without_source_file(collection_id: str, data_source_id: str) -> Select[str]:
    """Ids of documents made from files of the data source that it does not know: a process was killed in between."""
    mine = (DocumentRow.collection_id == collection_id, DocumentRow.data_source_id == data_source_id, *_SYNCED)
    has_file = exists().where(DataSourceFileRow.document_id == DocumentRow.id)
    return select(DocumentRow.id).where(*mine, ~has_file)


def forget_data_sources_of(collection_id: str) -> ReturningDelete[str]:
    """Returns their ids."""
    return delete(DataSourceRow).where(DataSourceRow.collection_id == collection_id).returning(DataSourceRow.id)


def _files_with_documents(*columns: Any) -> Select[*tuple[Any, ...]]:
    return (
        select(*columns)
        .select_from(DataSourceFileRow)
        .outerjoin(DocumentRow, DocumentRow.id == DataSourceFileRow.document_id)
    )
