"""A process's lease on one data source, and everything it may write while it holds it."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.orm import Session

from ragkv.errors import Conflict, NotFound
from ragkv.service.base.database import RELEASED, Database, advisory_lock, now_of, num_changed
from ragkv.service.base.lists import one_of
from ragkv.service.base.page import rows_behind
from ragkv.service.base.tables import DataSourceFileRow, DataSourceRow
from ragkv.service.collections.statements import collection_changed
from ragkv.service.data_sources.statements import (
    LEASE,
    attribute,
    claim_data_source,
    confirmed_since,
    documents_synced,
    documents_without_source_file,
    due_data_source,
    is_due,
    number_of_files,
    number_of_files_lost,
    other_files_of,
    schedule_of,
)
from ragkv.service.documents.attachment_statements import leave_to_mails
from ragkv.service.documents.removal import uploads_lock
from ragkv.service.documents.statements import ids_among

PAUSED = "the data source is paused: resume it first"


class SyncLease:
    """One owner's hold on one data source. Every write raises Conflict once it is lost: taken over, paused or
    removed."""

    def __init__(self, database: Database, source: DataSourceRow, owner: str) -> None:
        self.database = database
        self.source = source
        self._owner = owner
        self._held_at = time.monotonic()

    @classmethod
    def take(cls, database: Database, data_source_id: str, owner: str) -> "SyncLease | None":
        """None while another process holds it. Raises NotFound if it is gone, Conflict while it is paused."""
        with database.writing() as session:
            moment = now_of(session)
            claimed = num_changed(session, claim_data_source(data_source_id, owner, moment))
            source = session.get(DataSourceRow, data_source_id, populate_existing=True)
            if source is None:
                raise NotFound("the data source was removed in the meantime")
            if source.paused:
                raise Conflict(PAUSED)
        return cls(database, source, owner) if claimed else None

    @classmethod
    def take_next(cls, database: Database, owner: str) -> "SyncLease | None":
        """A hold on the data source whose sync is due. None when none is, or where it was paused, removed or taken by
        another process just now."""
        with database.reading() as session:
            due = session.scalars(due_data_source(now_of(session)).limit(1)).first()
        if due is None:
            return None
        with database.writing() as session:
            moment = now_of(session)
            claim = claim_data_source(due, owner, moment).where(is_due(moment))
            source = session.get_one(DataSourceRow, due) if num_changed(session, claim) else None
        return None if source is None else cls(database, source, owner)

    def known(self, keys: Sequence[str]) -> dict[str, DataSourceFileRow]:
        """Known files, by key."""
        return {row.key: row for row in self.database.scalars(select(DataSourceFileRow).where(*self._named(keys)))}

    def renew(self) -> None:
        """Hold on to it, where the last write is a while ago."""
        if time.monotonic() - self._held_at > LEASE.total_seconds() / 4:
            with self.database.writing() as session:
                self._hold_on(session)

    def saw(self, keys: Sequence[str], *, listed: int, skipped: int) -> None:
        """Note files that did not change, and how far the listing has come."""
        with self.database.writing() as session:
            self._hold_on(session, listed=listed, skipped=skipped)
            seen = update(DataSourceFileRow).where(*self._named(keys))
            num_changed(session, seen.values(seen_in=self.source.syncs, updated_at=DataSourceFileRow.updated_at))

    def record(self, key: str, version: str, num_bytes: int, document_id: str | None, error: str | None) -> None:
        """Note what became of a file that is new or changed. Its document may have been deleted since."""
        with self.database.writing() as session:
            self._hold_on(session)
            if document_id is not None:
                document_id = session.scalar(ids_among([document_id]).with_for_update(read=True, key_share=True))
            row = DataSourceFileRow(
                data_source_id=self.source.id,
                key=key,
                tenant_id=self.source.tenant_id,
                version=version,
                num_bytes=num_bytes,
                document_id=document_id,
                error=error,
                seen_in=self.source.syncs,
            )
            session.merge(row)

    def distrust(self, key: str) -> None:
        """Let the next sync read a file again, whichever process holds the data source now."""
        self.database.execute(update(DataSourceFileRow).where(*self._named([key])).values(version=""))

    def missing(self) -> tuple[int, int]:
        """(files that were listed under no name, all files)."""
        with self.database.reading() as session:
            missing = session.scalar(number_of_files_lost(self.source.id, self.source.syncs))
            return missing or 0, session.scalar(number_of_files(self.source.id)) or 0

    def some_missing(self, behind: str, limit: int) -> list[DataSourceFileRow]:
        """Files that were not listed, in the order of their keys, behind one."""
        with self.database.reading() as session:
            mine = DataSourceFileRow.data_source_id == self.source.id
            missing = select(DataSourceFileRow).where(mine, DataSourceFileRow.seen_in < self.source.syncs)
            position = (behind,) if behind else None
            return [row for (row,) in rows_behind(session, missing, (_KEY,), limit, position).items]

    def documents_to_delete(self, documents: Mapping[str, str | None]) -> list[str]:
        """Ids of the documents that go with these files, given by the files' keys: those that no other file and no mail
        has and that were not uploaded. One that stays for another file comes from there from now on, and is called like
        it unless it was renamed."""
        going: list[str] = []
        is_renamed = False
        with self.database.writing() as session:
            advisory_lock(session, uploads_lock(self.source.tenant_id))  # an upload of the same bytes keeps a document
            self._hold_on(session)
            ids = sorted({document_id for document_id in documents.values() if document_id is not None})
            for document in session.scalars(documents_synced(ids)).all():
                other = session.scalars(other_files_of(document.id, self.source.id, list(documents)).limit(1)).first()
                if other is None:
                    going.append(document.id)
                else:
                    location = session.get_one(DataSourceRow, other.data_source_id).location
                    is_renamed |= attribute(document, other, location)
            unneeded = _without_those_of_mails(session, going)
            if is_renamed:
                session.flush()
                session.execute(collection_changed(self.source.collection_id))
            return unneeded

    def strays(self, limit: int) -> list[str]:
        """Documents made from files that were never noted: the process was killed, and the file is gone since."""
        with self.database.writing() as session:
            advisory_lock(session, uploads_lock(self.source.tenant_id))
            self._hold_on(session)
            statement = documents_without_source_file(self.source.collection_id, self.source.id).limit(limit)
            return _without_those_of_mails(session, session.scalars(statement).all())

    def is_shared(self, document_id: str, key: str) -> bool:
        """Whether the document is not this file's alone: another file has its bytes, or they were uploaded."""
        with self.database.reading() as session:
            is_synced = session.scalars(documents_synced([document_id])).first() is not None
            other = session.scalars(other_files_of(document_id, self.source.id, [key]).limit(1)).first()
            return not is_synced or other is not None

    def forget(self, keys: Sequence[str]) -> None:
        with self.database.writing() as session:
            self._hold_on(session)
            session.execute(delete(DataSourceFileRow).where(*self._named(keys)))

    def end(self, *, is_whole: bool, **changes: Any) -> None:
        """Release it, with the outcome. The next sync is due an interval later, or when it was asked for since this one
        began. is_whole: the listing came to its end. Deletions that were confirmed before it are so no longer."""
        with self.database.writing() as session:
            moment = now_of(session)
            # A request for another sync, whose transaction has the row, is seen once it has committed.
            schedule = schedule_of(self.source.id).with_for_update(key_share=True)
            interval, next_at = session.execute(schedule).one_or_none() or (0, None)
            if next_at is None or next_at <= (self.source.next_at or moment):
                next_at = moment + timedelta(minutes=interval) if interval else None
            if is_whole:
                changes |= {
                    "synced_at": moment,
                    "confirmed_deletions": confirmed_since(self.source.confirmed_deletions),
                }
            self._change(session, next_at=next_at, **changes, **RELEASED)

    def give_back(self) -> None:
        """Release it in the middle of a sync, which another process continues."""
        with self.database.writing() as session:
            self._change(session, **RELEASED)

    def _hold_on(self, session: Session, **changes: Any) -> None:
        self._change(session, lease_until=now_of(session) + LEASE, **changes)
        self._held_at = time.monotonic()

    def _change(self, session: Session, **changes: Any) -> None:
        held = (DataSourceRow.id == self.source.id, DataSourceRow.lease_owner == self._owner)
        if not num_changed(session, update(DataSourceRow).where(*held).values(**changes)):
            raise Conflict("the data source was paused or removed, or another process is syncing it")

    def _named(self, keys: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
        return DataSourceFileRow.data_source_id == self.source.id, one_of(DataSourceFileRow.key, keys)


_KEY = DataSourceFileRow.key.expression


def _without_those_of_mails(session: Session, document_ids: Sequence[str]) -> list[str]:
    """Documents that a data source lost, but for those that go with their mails from now on."""
    session.execute(leave_to_mails(document_ids))
    return [document.id for document in session.scalars(documents_synced(document_ids))]
