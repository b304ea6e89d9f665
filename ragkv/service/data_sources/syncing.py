"""Keeps a collection in sync with a data source: accepts new files, replaces changed ones, removes deleted ones.

A listing is compared with what is known of the files, some at a time; deletions come last, and only after a whole
listing. Each file is a separate step: a sync that is interrupted anywhere is gone on with by the next.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Literal

from ragkv.errors import Conflict, NotFound, QuotaExceeded, RagKVError, Rejected, TooLarge, Unavailable
from ragkv.file_types import is_image, is_read, no_ocr
from ragkv.files_io import trouble_of
from ragkv.service.audit.log import Change, record_change
from ragkv.service.base.database import new_owner
from ragkv.service.base.tables import DataSourceFileRow
from ragkv.service.base.tenants import CollectionRef, collection_ref, tenant_name
from ragkv.service.data_sources.location import AWAY, UNSETTLED, ListedFile, SourceFiles, location_of
from ragkv.service.data_sources.opening import files_of
from ragkv.service.data_sources.statements import is_kept_by
from ragkv.service.data_sources.sync_lease import SyncLease
from ragkv.service.documents.changes import exchange_file
from ragkv.service.documents.documents import Origin, accept_document, delete_documents, is_waiting
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.removal import Removal
from ragkv.service.documents.requeue import enqueue
from ragkv.service.observe.worker_counters import WorkerCounters

log = logging.getLogger(__name__)

BATCH = 500
DELETED_AT_ONCE = 50
FEW = 10
"""Deletions up to which none asks for a confirmation, unless nothing is left."""
OUTAGES = 3
"""Files in a row that could not be read because something was away: then a sync stops. Those of which the last sync
found the same do not count."""
CLIENT = "data source"
"""In the audit log, in place of an address."""

SyncOutcome = Literal["done", "held", "failed", "interrupted"]
GoOn = Callable[["SyncTally"], bool]
"""Told of the progress; whether to go on."""


class _Interrupted(Exception):
    """The process is about to stop."""


@dataclass
class SyncTally:
    """The files of one sync, by what became of them. held: deletions that wait to be confirmed."""

    outcome: SyncOutcome = "done"
    error: str | None = None
    listed: int = 0
    skipped: int = 0
    unchanged: int = 0
    added: int = 0
    changed: int = 0
    deleted: int = 0
    unreadable: int = 0
    held: int = 0


def sync_next(intake: Intake, removal: Removal, counters: WorkerCounters, go_on: GoOn) -> SyncTally | None:
    """Sync the data source whose turn it is. None if none is due. Raises like `sync_now`."""
    lease = SyncLease.take_next(intake.database, new_owner())
    return None if lease is None else _run(lease, intake, removal, counters, go_on)


def sync_now(data_source_id: str, intake: Intake, removal: Removal, counters: WorkerCounters, go_on: GoOn) -> SyncTally:
    """Sync a data source in this process. Raises NotFound, Unavailable when the database is away, and Conflict while
    another process does so, or when it was paused or removed meanwhile."""
    lease = SyncLease.take(intake.database, data_source_id, new_owner())
    if lease is None:
        raise Conflict("another process is syncing the data source: try again when it has finished")
    return _run(lease, intake, removal, counters, go_on)


def _run(lease: SyncLease, intake: Intake, removal: Removal, counters: WorkerCounters, go_on: GoOn) -> SyncTally:
    """One sync, and its outcome noted."""
    sync = _Sync(lease, intake, removal, go_on)
    tally = sync.tally
    try:
        sync.run()
    except _Interrupted:
        tally.outcome = "interrupted"
        lease.give_back()
    except KeyboardInterrupt:
        lease.give_back()
        raise
    except Conflict:  # the lease is lost: the outcome is another's to note
        raise
    except Exception as error:  # also a bug: a lease that is never ended shows a sync without end
        reason: object = error
        if not isinstance(error, RagKVError):  # clients are not told: it names places of the server, or is a bug
            log.warning("a sync failed", exc_info=error)
            reason = trouble_of(error) or "an unexpected error: see the worker's log"
        tally.outcome, tally.error = "failed", str(reason)
        lease.end(is_whole=False, error=tally.error, held_deletions=0)
    else:
        lease.end(is_whole=True, error=tally.error, held_deletions=tally.held)
    log.info("data source %s: %s", lease.source.id, tally.outcome, extra={"files": asdict(tally)})
    counters.synced(
        tally.outcome, added=tally.added, changed=tally.changed, deleted=tally.deleted, unreadable=tally.unreadable
    )
    return tally


class _Sync:
    """One run over one data source."""

    def __init__(self, lease: SyncLease, intake: Intake, removal: Removal, go_on: GoOn) -> None:
        self.tally = SyncTally()
        self._lease = lease
        self._intake, self._removal = intake, removal
        self._told_to_go_on = go_on
        self._source = lease.source
        self._location = location_of(lease.source.location)
        self._outages = 0
        self._full: QuotaExceeded | None = None

    def run(self) -> None:
        """Run one sync to its end. Raises _Interrupted, Conflict once the lease is lost, and what stops a sync with a
        reason."""
        tenant_id = self._source.tenant_id
        files = files_of(self._location, tenant_name(tenant_id, self._intake.database), self._intake.settings)
        ref = collection_ref(tenant_id, self._source.collection_id, self._intake.database)
        listed = files.listed()
        while batch := list(islice(listed, BATCH)):
            self._compare(batch, files, ref)
        if files.gap is not None:
            self.tally.error = f"{files.gap}. Nothing was deleted: the files behind it may be there"
        elif self._may_delete():
            behind = ""
            while missing := self._lease.some_missing(behind, DELETED_AT_ONCE):
                self._go_on()
                # A listing may miss what is moved meanwhile: each file is looked for by itself.
                deleted = {file.key: file.document_id for file in missing if not files.exists(file.key)}
                self._delete_documents(self._lease.documents_to_delete(deleted))
                self._lease.forget(list(deleted))
                self.tally.deleted += len(deleted)
                behind = missing[-1].key
            while strays := self._lease.strays(DELETED_AT_ONCE):
                self._go_on()
                self._lease.renew()
                self._delete_documents(strays)
        if self._full is not None and self.tally.outcome == "done":
            self.tally.outcome, self.tally.error = "failed", str(self._full)

    def _compare(self, batch: Sequence[ListedFile], files: SourceFiles, ref: CollectionRef) -> None:
        """One batch of the listing: what did not change is noted as seen, the rest is read, while the tenant has room.
        Without room what is known stays as it was; what is deleted at the end makes some for the next sync."""
        tally = self.tally
        read = [file for file in batch if is_read(file.key)]
        rows = self._lease.known([file.key for file in read])
        # Of files with a document, or an error: one whose document was deleted is read again.
        versions = {
            key: row.version for key, row in rows.items() if row.document_id is not None or row.error is not None
        }
        changed = [file for file in read if file.version == UNSETTLED or file.version != versions.get(file.key)]
        same = {file.key for file in read} - {file.key for file in changed}
        tally.listed += len(batch)
        tally.skipped += len(batch) - len(read)
        tally.unchanged += len(same)
        self._lease.saw(sorted(same), listed=tally.listed, skipped=tally.skipped)
        self._go_on()
        for file in sorted(changed, key=lambda file: _was_away(rows.get(file.key))):
            if self._full is not None:
                break
            self._take(file, rows.get(file.key), files, ref)
            self._go_on()
        if self._full is not None:
            self._lease.saw(sorted(rows), listed=tally.listed, skipped=tally.skipped)

    def _take(self, file: ListedFile, row: DataSourceFileRow | None, files: SourceFiles, ref: CollectionRef) -> None:
        """Read one new or changed file. One that cannot be read keeps the document of the version before."""
        document_id = None if row is None else row.document_id
        version, error, outage = file.version, None, None
        self._lease.renew()
        try:
            self._refuse(file)
            document_id = self._accepted(file, document_id, files, ref)
            self._outages = 0
        except QuotaExceeded as full:
            self._full = full
            return
        except NotFound:
            collection_ref(ref.tenant_id, ref.collection_id, self._intake.database)  # if that is gone it stops here
            return  # gone since it was listed
        except Rejected as refusal:
            error = str(refusal)
        except Unavailable as away:
            error, version, outage = f"{away} (the next sync tries again)", AWAY, away
        self.tally.unreadable += error is not None
        try:
            self._lease.record(file.key, version, file.num_bytes, document_id, error)
        except Conflict:
            self._lease.distrust(file.key)  # who holds it now may have read a newer version before this one was kept
            raise
        if outage is not None and not _was_away(row):
            self._outages += 1
            if self._outages == OUTAGES:
                raise outage

    def _refuse(self, file: ListedFile) -> None:
        if file.refusal is not None:
            raise Rejected(file.refusal)
        if is_image(file.key) and (instead := no_ocr(wanted=self._intake.settings.ocr)):
            raise Rejected(f"it is an image: {instead}")
        most = self._intake.settings.max_upload_bytes
        if file.num_bytes > most:
            raise TooLarge(f"the file is larger than {most:,} bytes: split it, or raise RAGKV_MAX_UPLOAD_BYTES")

    def _accepted(self, file: ListedFile, earlier_id: str | None, files: SourceFiles, ref: CollectionRef) -> str:
        """The document of a file's bytes: the one before with these in place, or another in place of that."""
        if earlier_id is not None and not self._lease.is_shared(earlier_id, file.key):
            with files.open(file.key) as body, suppress(Conflict, NotFound):
                own = is_kept_by(self._source.id)  # it may have been uploaded since, or attached
                exchanged = exchange_file(ref.tenant_id, earlier_id, None, body, self._intake, self._removal, own)
                if is_waiting(exchanged.view):
                    enqueue(earlier_id, self._intake.queue)
                if exchanged.is_new:
                    self.tally.changed += 1
                    self._note("Replace a document from a data source", [earlier_id])
                else:
                    self.tally.unchanged += 1
                return earlier_id
        origin = Origin(self._source.id, self._location.of_file(file.key))
        with files.open(file.key) as body:
            accepted = accept_document(ref, file.key, body, self._intake, origin=origin)
        if accepted.created:
            self._note("Add a document from a data source", [accepted.document_id])
        if earlier_id is None:
            self.tally.added += 1
        elif accepted.document_id != earlier_id:
            self.tally.changed += 1
            self._delete_documents(self._lease.documents_to_delete({file.key: earlier_id}))
        else:
            self.tally.unchanged += 1
        return accepted.document_id

    def _may_delete(self) -> bool:
        """Whether what was not listed may be deleted. If not, the tally says why."""
        missing, total = self._lease.missing()
        earlier = total - self.tally.added
        is_empty = self.tally.listed == self.tally.skipped
        if not missing or missing <= self._source.confirmed_deletions:
            return True
        if not is_empty and (missing <= FEW or 2 * missing <= earlier):
            return True
        self.tally.outcome, self.tally.held = "held", missing
        self.tally.error = (
            f"{missing:,} of {earlier:,} files are no longer there. Their documents were not deleted: check the location, "
            "then confirm the deletions"
        )
        return False

    def _delete_documents(self, document_ids: list[str]) -> None:
        if not document_ids:
            return
        place = self._source.tenant_id, self._source.collection_id
        if deleted := delete_documents(*place, document_ids, self._removal, is_kept_by(self._source.id)):
            self._note("Delete a document that its data source lost", deleted)

    def _go_on(self) -> None:
        if not self._told_to_go_on(self.tally):
            raise _Interrupted

    def _note(self, action: str, document_ids: Sequence[str]) -> None:
        """Record a change in the audit log. Where that fails it is made already."""
        change = Change(self._source.tenant_id, None, action, "sync", CLIENT, document_ids, self._source.id)
        try:
            record_change(change, self._intake.database)
        except RagKVError as error:
            log.error("a change was not recorded (%s): %s", error, change)  # noqa: TRY400 - the message says what to do


def _was_away(row: DataSourceFileRow | None) -> bool:
    """Whether it could not be read at the last sync because something was away. Such files come last, so that those
    behind them are read though they always fail."""
    return row is not None and row.version == AWAY
