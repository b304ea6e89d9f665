"""A tenant's data sources: create, list with progress, change, remove; and their files."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec

from ragkv.errors import Conflict, Rejected
from ragkv.service.audit.statements import note_deletions
from ragkv.service.base.database import Database, Session, advisory_lock, now_of, num_changed
from ragkv.service.base.page import from_cursor, row_by_id, rows_behind, view_from
from ragkv.service.base.tables import DataSourceFileRow, DataSourceRow
from ragkv.service.base.tenants import collection_ref, hold_collection, tenant_name
from ragkv.service.data_sources.location import FOLDER, Location, location_of
from ragkv.service.data_sources.opening import files_of
from ragkv.service.data_sources.statements import (
    LONGEST_INTERVAL,
    LONGEST_LEASE,
    FileStatus,
    data_source_changed,
    data_sources_of,
    files_by_status,
    files_in,
    forget_failed_versions,
    note_watch,
    watched_data_sources,
)
from ragkv.service.data_sources.sync_lease import PAUSED
from ragkv.settings import Settings
from ragkv.text import storable

MAX_DATA_SOURCES = 20
"""Data sources of a tenant, at most."""
DEFAULT_INTERVAL_MINUTES = 15
MAX_INTERVAL_MINUTES = LONGEST_INTERVAL // timedelta(minutes=1)

SyncStatus = Literal["waiting", "syncing", "synced", "held", "failed", "paused"]
"""waiting: for its first sync; held: deletions wait to be confirmed."""


class SourceFileCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a data source by status."""

    waiting: Annotated[int, "Files whose documents are not ingested yet."]
    searchable: Annotated[int, "Files whose documents answer questions, some of their KV missing."]
    ready: Annotated[int, "Files whose documents answer questions, all of their KV stored."]
    failed: Annotated[int, "Files whose documents could not be ingested."]
    unreadable: Annotated[int, "Files that no document could be made from."]
    skipped: Annotated[int, "Files of types that are not ingested."]


class DataSourceView(msgspec.Struct, frozen=True, kw_only=True):
    """A data source, its last sync, and its files."""

    id: str
    collection_id: Annotated[str, "Id of the collection that is kept in step."]
    location: Annotated[str, "Folder, or URL of an object store."]
    interval_minutes: Annotated[int, "Minutes from one sync to the next; 0: only on request."]
    watch: Annotated[bool, "Whether a sync is also due a few seconds after the folder has changed."]
    watch_error: Annotated[str | None, "Reason why the folder cannot be watched; syncs are due by the interval alone."]
    status: Annotated[
        SyncStatus,
        "`waiting` for its first sync, `syncing`, `synced`, `held`: deletions are waiting to be confirmed, "
        "`failed`: the last sync stopped, or `paused`.",
    ]
    error: Annotated[str | None, "Reason why the last sync stopped or deleted nothing."]
    held_deletions: Annotated[int, "Number of deletions waiting to be confirmed."]
    listed: Annotated[int, "Number of files that the current or last sync has listed."]
    files: Annotated[SourceFileCounts, "Number of files by status."]
    created_at: datetime
    synced_at: Annotated[datetime | None, "Time when the last complete sync ended; null before the first."]
    next_at: Annotated[datetime | None, "Time of the next sync; null if none is due."]


@dataclass(frozen=True, slots=True)
class WatchedFolder:
    """A data source whose folder is to be watched."""

    data_source_id: str
    tenant_id: str
    location: str


class SourceFileView(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a data source, and the document made from it."""

    key: Annotated[str, "Name of the file below the location."]
    status: Annotated[FileStatus, "`waiting`, `searchable`, `ready`, `failed` or `unreadable`."]
    bytes: Annotated[int, "Size of the file in bytes."]
    error: Annotated[str | None, "Reason why it could not be read or ingested."]
    document_id: Annotated[str | None, "Id of its document; null without one."]
    updated_at: Annotated[datetime, "Time when it was last read."]


class DataSourcePage(msgspec.Struct, frozen=True):
    """All data sources: a tenant has no more than one page of them."""

    items: Annotated[list[DataSourceView], "Data sources, oldest first."]
    next: str | None


class SourceFilePage(msgspec.Struct, frozen=True):
    """A page of files, by key."""

    items: Annotated[list[SourceFileView], "Files in the order of their names."]
    next: str | None


def add_data_source(
    tenant_id: str,
    collection: str,
    location: str,
    interval_minutes: int,
    database: Database,
    settings: Settings,
    watch: bool | None = None,
) -> DataSourceView:
    """Connect a location to a collection; its first sync is due at once.

    watch: whether changes are noticed between syncs; None: where the location is a folder that is synced by itself.
    Raises Rejected for what is no location, an object store to be watched, or an interval out of range, Forbidden for a
    location that the operator does not allow, NotFound for the collection, and Conflict for one that is connected
    already, or one too many.
    """
    place = location_of(location)
    files_of(place, tenant_name(tenant_id, database), settings)
    _check_interval(interval_minutes)
    if watch is None:
        watch = place.scheme == FOLDER and interval_minutes > 0
    _check_watch(watch, place)
    collection_id = collection_ref(tenant_id, collection, database).collection_id
    with database.writing() as session:
        advisory_lock(session, f"data sources {tenant_id}")
        hold_collection(session, collection_id)
        sources = session.scalars(data_sources_of(tenant_id)).all()
        if any((source.collection_id, source.location) == (collection_id, str(place)) for source in sources):
            raise Conflict(f"{place} is already a data source of this collection")
        if len(sources) >= MAX_DATA_SOURCES:
            raise Conflict(f"the tenant already has {MAX_DATA_SOURCES} data sources: remove one")
        row = DataSourceRow(
            tenant_id=tenant_id,
            collection_id=collection_id,
            location=str(place),
            interval_minutes=interval_minutes,
            watch=watch,
            next_at=now_of(session),
        )
        session.add(row)
        session.flush()
        return _views(session, [row])[0]


def list_data_sources(tenant_id: str, database: Database) -> list[DataSourceView]:
    """All data sources of a tenant, oldest first."""
    with database.reading() as session:
        return _views(session, list(session.scalars(data_sources_of(tenant_id))))


def data_source_view(tenant_id: str, data_source_id: str, database: Database) -> DataSourceView:
    """The view of a data source. Raises NotFound."""
    with database.reading() as session:
        return _views(session, [_find(session, tenant_id, data_source_id)])[0]


def list_source_files(
    tenant_id: str, data_source_id: str, status: FileStatus | None, limit: int, cursor: str | None, database: Database
) -> SourceFilePage:
    """A page of a data source's files, by key. Raises NotFound for the data source, Rejected for a cursor that is not
    ours."""
    after = from_cursor(cursor, tuple[str])
    behind = None if after is None else (storable(after[0]),)
    with database.reading() as session:
        statement = files_in(_find(session, tenant_id, data_source_id).id, status)
        files = rows_behind(session, statement, (DataSourceFileRow.key.expression,), limit, behind)
        items = [
            view_from(
                SourceFileView,
                row,
                status=FileStatus(file_status),
                bytes=row.num_bytes,
                error=row.error or (failure if file_status == FileStatus.FAILED else None),
            )
            for row, file_status, failure in files.items
        ]
    return SourceFilePage(items, files.next(lambda row: (row[0].key,)))


def change_data_source(
    tenant_id: str,
    data_source_id: str,
    database: Database,
    *,
    paused: bool | None = None,
    interval_minutes: int | None = None,
    watch: bool | None = None,
) -> DataSourceView:
    """Pause or resume (pausing ends a running sync), change the interval, or switch watching. None leaves a field
    unchanged. A sync that is due stays so whatever the interval.

    Raises NotFound, Rejected for an interval out of range, or an object store to be watched.
    """
    with database.writing() as session:
        row = _find(session, tenant_id, data_source_id, lock=True)
        moment = now_of(session)
        if interval_minutes is not None:
            _check_interval(interval_minutes)
            row.interval_minutes = interval_minutes
            if row.next_at is None or row.next_at > moment:
                row.next_at = moment + timedelta(minutes=interval_minutes) if interval_minutes else None
        if watch is not None:
            _check_watch(watch, location_of(row.location))
            row.watch, row.watch_error = watch, None
        if paused and not row.paused:
            row.lease_owner = row.lease_until = None
        if paused is False and row.paused:
            row.next_at = moment
        row.paused = row.paused if paused is None else paused
        session.flush()
        return _views(session, [row])[0]


def request_sync(tenant_id: str, data_source_id: str, confirm: bool, database: Database) -> DataSourceView:
    """Let a worker sync it now. confirm: the deletions that it holds may be made, and no more than these.

    Raises NotFound, Conflict while it is paused, or where there is nothing to confirm.
    """
    with database.writing() as session:
        row = _due_now(session, tenant_id, data_source_id)
        if confirm and not row.held_deletions:
            raise Conflict("no deletions are waiting to be confirmed")
        if confirm:
            row.confirmed_deletions = row.held_deletions
            session.flush()
        return _views(session, [row])[0]


def retry_files(tenant_id: str, data_source_id: str, database: Database) -> DataSourceView:
    """Let a worker sync it now, and read unreadable and failed files again, though they did not change.

    Raises NotFound, Conflict while it is paused.
    """
    with database.writing() as session:
        row = _due_now(session, tenant_id, data_source_id)  # locks it before its files, as a sync does
        num_changed(session, forget_failed_versions(row.id))
        return _views(session, [row])[0]


def remove_data_source(tenant_id: str, data_source_id: str, database: Database) -> None:
    """Disconnect it. Its documents stay. Raises NotFound."""
    with database.writing() as session:
        session.delete(_find(session, tenant_id, data_source_id))
        note_deletions(session, DataSourceRow, [data_source_id])


def watched_folders(database: Database) -> list[WatchedFolder]:
    """The folders that are to be watched, of all tenants in turn, the oldest of each first."""
    rows = database.scalars(watched_data_sources())
    return [WatchedFolder(row.id, row.tenant_id, row.location) for row in rows]


def folder_changed(data_source_id: str, database: Database) -> None:
    """Make a sync due now, or after the running one."""
    with database.writing() as session:
        num_changed(session, data_source_changed(data_source_id, now_of(session)))


def note_watching(data_source_id: str, error: str | None, database: Database) -> None:
    """Note that a folder is watched, or why it cannot be."""
    database.execute(note_watch(data_source_id, error))


def _check_interval(minutes: int) -> None:
    if not 0 <= minutes <= MAX_INTERVAL_MINUTES:
        raise Rejected(f"the interval must be between 0 and {MAX_INTERVAL_MINUTES:,} minutes; 0 for manual syncs only")


def _check_watch(watch: bool, location: Location) -> None:
    if watch and location.scheme != FOLDER:
        raise Rejected("only folders can be watched: an object store is synced by its interval")


def _find(session: Session, tenant_id: str, data_source_id: str, *, lock: bool = False) -> DataSourceRow:
    """The row of a data source, for the transaction to change alone with `lock`. Raises NotFound."""
    statement = data_sources_of(tenant_id).where(DataSourceRow.id == data_source_id)
    statement = statement.with_for_update() if lock else statement
    return row_by_id(session, statement, data_source_id, "there is no data source")[0]


def _due_now(session: Session, tenant_id: str, data_source_id: str) -> DataSourceRow:
    """The data source, which a worker is to sync now. Raises NotFound, Conflict while it is paused."""
    row = _find(session, tenant_id, data_source_id, lock=True)
    if row.paused:
        raise Conflict(PAUSED)
    row.next_at = now_of(session)
    session.flush()
    return row


def _views(session: Session, rows: list[DataSourceRow]) -> list[DataSourceView]:
    counts = {row.id: {status.value: 0 for status in FileStatus} for row in rows}
    for data_source_id, status, number in session.execute(files_by_status(list(counts))):
        counts[data_source_id][status] = number
    moment = now_of(session)
    return [
        view_from(
            DataSourceView,
            row,
            status=_status(row, moment),
            files=SourceFileCounts(skipped=row.skipped, **counts[row.id]),
            next_at=None if row.paused else row.next_at,
        )
        for row in rows
    ]


def _status(row: DataSourceRow, moment: datetime) -> SyncStatus:
    if row.paused:
        return "paused"
    if row.lease_until is not None and moment < row.lease_until <= moment + LONGEST_LEASE:
        return "syncing"
    if row.held_deletions:
        return "held"
    if row.error is not None:
        return "failed"
    return "waiting" if row.synced_at is None else "synced"
