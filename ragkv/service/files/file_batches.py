"""Files that are attached to a collection together, and their progress."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from ragkv.errors import NotFound
from ragkv.ids import new_id, utc_now
from ragkv.service.base.database import Database, Session
from ragkv.service.base.page import Page, PageRequest, row_by_id
from ragkv.service.base.status import UNREAD, Status
from ragkv.service.base.tables import DocumentRow, FileBatchMemberRow, FileBatchRow
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.removal import Removal
from ragkv.service.files.attachments import Attach, StoreEntry, attach_files, detach_file, entries_among
from ragkv.service.files.statements import batch_by_id, count_members, entries_of_batch


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Files by the state of their documents; `num_missing` are no longer in the collection."""

    id: str
    collection_id: str
    created_at: datetime
    cancelled: bool
    statuses: Counter[Status]
    num_missing: int


def attach_batch(ref: CollectionRef, files: Sequence[Attach], intake: Intake) -> BatchProgress:
    """Attach all files, or none. Raises like `attach_files`."""
    batch_id, file_ids = new_id(), dict.fromkeys(file.file_id for file in files)

    def keep(session: Session) -> None:
        session.add(FileBatchRow(id=batch_id, collection_id=ref.collection_id, created_at=utc_now()))
        session.flush()
        session.add_all(FileBatchMemberRow(batch_id=batch_id, file_id=file_id) for file_id in file_ids)

    attach_files(ref, files, intake, keep)
    return batch_of(ref, batch_id, intake.database)


def batch_of(ref: CollectionRef, batch_id: str, database: Database) -> BatchProgress:
    """A batch with the progress of its files. Raises NotFound."""
    with database.reading() as session:
        row = _find(session, ref, batch_id)
        documents = session.execute(entries_of_batch(ref.tenant_id, row)).all()
        statuses = Counter(document.status for document, *_ in documents)
        num_missing = (session.scalar(count_members(row.id)) or 0) - len(documents)
        return BatchProgress(row.id, row.collection_id, row.created_at, row.cancelled, statuses, num_missing)


def list_batch(
    ref: CollectionRef, batch_id: str, page: PageRequest, statuses: Sequence[Status] | None, database: Database
) -> Page[StoreEntry]:
    """The batch's files that are still in the collection. Raises NotFound for the batch or the one to begin at."""
    with database.reading() as session:
        listed = entries_of_batch(ref.tenant_id, _find(session, ref, batch_id), statuses)
        return entries_among(session, ref, listed, page)


def cancel_batch(ref: CollectionRef, batch_id: str, removal: Removal) -> BatchProgress:
    """Take out of the collection those of the batch's files that are not searchable yet. A batch without such stays
    as it is. Raises NotFound, Unavailable."""
    with removal.database.writing() as session:
        row = _find(session, ref, batch_id, lock=True)
        unread = [file_id for _, file_id, _ in session.execute(entries_of_batch(ref.tenant_id, row, UNREAD))]
        is_cancelled_now = bool(unread) and not row.cancelled
        row.cancelled |= is_cancelled_now
    if is_cancelled_now:
        removal.when_changed()
    for file_id in unread:
        with suppress(NotFound):  # detached meanwhile
            detach_file(ref, file_id, removal, still=[DocumentRow.status.in_(UNREAD)])
    return batch_of(ref, batch_id, removal.database)


def _find(session: Session, ref: CollectionRef, batch_id: str, *, lock: bool = False) -> FileBatchRow:
    """The row of a batch, for the transaction to change alone with `lock`. Raises NotFound."""
    statement = batch_by_id(ref.tenant_id, ref.collection_id, batch_id)
    statement = statement.with_for_update(of=FileBatchRow) if lock else statement
    return row_by_id(session, statement, batch_id, "the collection has no batch of files")[0]
