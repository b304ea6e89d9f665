"""A worker's lease on one document, and everything it may write while it holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from ragkv.chunk import Chunk
from ragkv.errors import Conflict
from ragkv.ids import batched
from ragkv.kv.rule import KVRule, KVWhen
from ragkv.retrieve.index import Vectors
from ragkv.service.base.database import RELEASED, Database, now_of, num_changed
from ragkv.service.base.long_work import retry_delay_s
from ragkv.service.base.status import UNFINISHED, JobStatus, Status
from ragkv.service.base.tables import ChunkRow, DocumentRow, JobRow
from ragkv.service.collections.statements import collection_of_document_changed, mark_changed_document
from ragkv.service.documents.chunk_statements import (
    CHUNK_KEYS,
    chunk_row,
    chunks_of,
    kv_names,
    name_kv,
    to_chunk,
)
from ragkv.service.documents.job_statements import (
    BEGUN_FIRST,
    INGEST,
    LACKS_KV,
    REBUILD,
    Kinds,
    Others,
    documents_with_lost_workers,
    newest_cause,
    next_waiting,
    open_jobs,
    open_kind,
    others_wait,
    served,
    tenants_by_turn,
)
from ragkv.service.documents.statements import NOT_REPLACED, claim
from ragkv.service.kv_admin.entry_statements import (
    keep_entries,
    keys_in_use,
    keys_of_documents,
    keys_with_entries,
    recall_uses,
    unshared_keys,
)
from ragkv.service.kv_admin.rule_statements import is_to_keep, rule_of, tried
from ragkv.service.webhooks.statements import FAILED_EVENT, READY_EVENT, announce

LEASE = timedelta(seconds=60)
LATELY = 10 * LEASE


@dataclass(frozen=True, slots=True)
class KeptKV:
    """One chunk's KV as it lies in the store. Chunks with the same text share a key."""

    chunk_id: str
    key: str
    num_tokens: int
    num_bytes: int


class Lease:
    """One owner's hold on one document. Every write raises Conflict once the lease is lost or the document deleted."""

    def __init__(self, database: Database, document_id: str, owner: str) -> None:
        self.database = database
        self.document_id = document_id
        self.owner = owner

    @classmethod
    def take(cls, database: Database, document_id: str, owner: str) -> "Lease | None":
        """None when the document is gone, finished, or held by someone else."""
        with database.writing() as session:
            if not _claimed(session, document_id, owner, now_of(session)):
                return None
        return cls(database, document_id, owner)

    @staticmethod
    def any_waits(database: Database, kinds: Kinds) -> bool:
        """Whether a document of any tenant waits for a worker."""
        with database.reading() as session:
            statuses = [status for kind in kinds for status in kind]
            return session.scalars(tenants_by_turn(now_of(session), statuses).limit(1)).first() is not None

    @classmethod
    def take_next(cls, database: Database, owner: str, kinds: Kinds = (BEGUN_FIRST, LACKS_KV)) -> "Lease | None":
        """A hold on the document whose turn it is, of the first of these kinds of which any waits. None when none
        waits."""
        with database.writing() as session:
            moment = now_of(session)
            turn = next_waiting(session, moment, kinds)
            if turn is None or not _claimed(session, turn[0], owner, moment):
                return None
            num_changed(session, served(*turn, moment))
        return cls(database, turn[0], owner)

    def others_wait(self) -> Others:
        """Other documents that wait and come before more of this one."""
        with self.database.reading() as session:
            document = self._row(session)
            return others_wait(session, document.tenant_id, document.status, now_of(session))

    def others_lost_workers(self) -> int:
        """The number of other documents that lost the worker that held them, in the last minutes."""
        with self.database.reading() as session:
            since = now_of(session) - LATELY
            return session.scalar(documents_with_lost_workers(self.document_id, since)) or 0

    def cause(self) -> dict[str, str]:
        """The request that queued the document, as `ragkv.observe.traces` has it."""
        return self.database.scalar(newest_cause(self.document_id)) or {}

    def document(self) -> DocumentRow:
        with self.database.reading() as session:
            return self._row(session)

    def unused(self, keys: Sequence[str], sha256: str) -> set[str]:
        """The keys that no chunk uses any longer, if the document is gone or has another file than this; none while it
        has this file."""
        with self.database.reading() as session:
            document = session.get(DocumentRow, self.document_id)
            if document is not None and document.sha256 == sha256:
                return set()
            used = {key for batch in batched(keys) for key in session.scalars(keys_in_use(batch))}
            return set(keys) - used

    def renew(self, **changes: Any) -> None:
        with self.database.writing() as session:
            self._change(session, lease_until=now_of(session) + LEASE, **changes)

    def report(self, stage: str, done: int, total: int) -> None:
        """Show progress, in the stage's unit."""
        self.renew(stage=stage, progress_done=done, progress_total=total)

    def enter(self, status: Status, **changes: Any) -> None:
        """Move on to a status that is not the last."""
        assert status in UNFINISHED, "finish() and fail() end an ingestion"
        with self.database.writing() as session:
            self._change(session, status=status, **changes)
            if status is Status.SEARCHABLE:
                session.execute(collection_of_document_changed(self.document_id))
                session.execute(mark_changed_document(self.document_id))  # their encoder is known from now on

    def store_chunks(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vectors],
        status: Status,
        kv_keys: Mapping[str, str] = {},
        **changes: Any,
    ) -> list[str]:
        """Write all chunks in place of those there were. Returns the KV keys that only those used.

        kv_keys: the KV key of each chunk, by its id: KV that those had of the same text stays in use.
        """
        tokens = sum(chunk.num_tokens for chunk in chunks)
        with self.database.writing() as session:
            self._change(
                session,
                status=status,
                version=DocumentRow.version + 1,
                num_chunks=len(chunks),
                num_tokens=tokens,
                **NOT_REPLACED,
                **changes,
            )
            tenant_id = session.get_one(DocumentRow, self.document_id).tenant_id
            superseded = [key for key in session.scalars(unshared_keys(self.document_id)) if key]
            stored = {key for batch in batched(superseded) for key in session.scalars(keys_with_entries(batch))}
            session.execute(delete(ChunkRow).where(ChunkRow.document_id == self.document_id))
            rows = [chunk_row(tenant_id, *pair) for pair in zip(chunks, vectors, strict=True)]
            for row in rows:
                row.kv_key = key if (key := kv_keys.get(row.id)) in stored else None
            in_use = {row.kv_key for row in rows}
            session.add_all(rows)
            session.flush()
            session.execute(collection_of_document_changed(self.document_id))
            session.execute(mark_changed_document(self.document_id))
            return [key for key in superseded if key not in in_use]

    def kv_rule(self, default: KVRule) -> KVRule:
        """The rule for the document's KV: what its collection has in place of the default."""
        with self.database.reading() as session:
            return self._kv_rule(session, default)

    def chunks_to_keep(self, rule: KVRule) -> list[Chunk]:
        """The chunks whose KV the rule wants; all of them if the document's KV was requested."""
        with self.database.reading() as session:
            statement = chunks_of(self.document_id).order_by(*CHUNK_KEYS)
            if rule.when is not KVWhen.UPLOAD and session.scalars(open_kind(self.document_id, REBUILD)).first() is None:
                statement = statement.where(is_to_keep(rule))
            return [to_chunk(row) for row in session.scalars(statement)]

    def kv_keys(self) -> set[str]:
        """KV keys that the document's chunks use already."""
        return set(self.database.scalars(keys_of_documents([self.document_id])))

    def finish(
        self,
        entries: Sequence[KeptKV],
        kv_fingerprint: str,
        rule: KVRule | None = None,
        default: KVRule | None = None,
        *,
        is_whole: bool = True,
    ) -> bool:
        """Mark as ready: all KV is kept. With `is_whole` False, where room was lacking or the rule does not want it, as
        if the rest was evicted; chunks that the rule wanted for their uses start counting again.

        False where the document's `kv_rule` of the default is no longer `rule`: the KV is recorded, and the rest is
        left to do.
        """
        ended = {"status": Status.READY if is_whole else Status.SEARCHABLE, "kv_evicted": not is_whole, "stage": ""}
        with self.database.writing() as session:
            self._change(session)
            _keep(session, self._row(session).tenant_id, entries)
            # From here on the collection's row is locked: its rule changes before this look or after the commit.
            session.execute(collection_of_document_changed(self.document_id))
            if default is not None and self._kv_rule(session, default) != rule:
                return False
            self._change(session, kv_fingerprint=kv_fingerprint, error=None, outages=0, **ended, **RELEASED)
            if rule is not None and rule.when is KVWhen.NTH_USE:
                session.execute(tried(self.document_id, rule.uses))
            if session.scalars(open_kind(self.document_id, INGEST)).first() is not None:  # not KV that was made again
                announce(session, self.document_id, READY_EVENT)
            session.execute(open_jobs(self.document_id, status=JobStatus.DONE, error=None))
            return True

    def keep(self, entries: Sequence[KeptKV]) -> None:
        """Record KV that is in the store. The first KV of a chunk is progress: attempts begin anew."""
        with self.database.writing() as session:
            named = dict(session.execute(kv_names([kv.chunk_id for kv in entries])).all())
            is_new = any(named.get(kv.chunk_id) != kv.key for kv in entries)  # evicted KV made again is no progress
            self._change(session, **({"attempts": 1} if is_new else {}))
            _keep(session, self._row(session).tenant_id, entries)

    def end_turn(self) -> None:
        """Release the document until its turn comes again. It has made progress: attempts begin anew."""
        with self.database.writing() as session:
            self._release(session, None, attempts=0, outages=0)

    def fail(self, reason: str) -> None:
        """Mark as failed for good, with the reason."""
        self._give_up(reason, status=Status.FAILED)

    def keep_earlier(self, reason: str) -> None:
        """End a re-read that failed for good, with the reason: the earlier chunks go on answering, with the KV they
        have. The next re-read is the one that is asked for."""
        self._give_up(reason, status=Status.SEARCHABLE, kv_evicted=True)

    def give_back(self, reason: str | None) -> None:
        """Release for another try, after a failure a little later. Without a reason it was interrupted: no attempt."""
        with self.database.writing() as session:
            attempts = self._row(session).attempts
            if reason is None:
                self._release(session, None, attempts=attempts - 1)
            else:
                self._release(session, reason, retry_at=_later(session, attempts))

    def postpone(self, reason: str) -> None:
        """Release for another try later, any number of times:
        the failure was not the document's and costs no attempt."""
        with self.database.writing() as session:
            row = self._row(session)
            retry_at = _later(session, row.outages + 1)
            self._release(session, reason, attempts=row.attempts - 1, outages=row.outages + 1, retry_at=retry_at)

    def _give_up(self, reason: str, **changes: Any) -> None:
        with self.database.writing() as session:
            self._change(session, **changes, error=reason, stage="", **RELEASED)
            session.execute(open_jobs(self.document_id, status=JobStatus.FAILED, error=reason))
            if self._row(session).is_replaced:  # answers that are kept name another reason why the text is outdated
                session.execute(collection_of_document_changed(self.document_id))
            announce(session, self.document_id, FAILED_EVENT)

    def _release(self, session: Session, reason: str | None, **changes: Any) -> None:
        self._change(session, error=reason, **changes, **RELEASED)
        session.execute(open_jobs(self.document_id, status=JobStatus.QUEUED, error=reason))

    def _kv_rule(self, session: Session, default: KVRule) -> KVRule:
        own = session.execute(rule_of(self.document_id)).one_or_none()
        return default.in_place_of(*own) if own else default

    def _row(self, session: Session) -> DocumentRow:
        row = session.get(DocumentRow, self.document_id)
        if row is None:
            raise Conflict(f"document {self.document_id} was deleted")
        return row

    def _change(self, session: Session, **changes: Any) -> None:
        held = update(DocumentRow).where(DocumentRow.id == self.document_id, DocumentRow.lease_owner == self.owner)
        if not num_changed(session, held.values(updated_at=now_of(session), **changes)):
            raise Conflict(f"document {self.document_id} was deleted, or another worker took it over")


def _claimed(session: Session, document_id: str, owner: str, moment: datetime) -> bool:
    """Whether `owner` holds the document now. A lease that had lapsed means that its worker was lost, and is noted."""
    lost = session.scalar(select(DocumentRow.lease_owner).where(DocumentRow.id == document_id)) is not None
    if not num_changed(session, claim(document_id, owner, moment, moment + LEASE)):
        return False
    attempts = JobRow.attempts + int(lost)
    session.execute(open_jobs(document_id, status=JobStatus.RUNNING, attempts=attempts, updated_at=moment))
    return True


def _later(session: Session, failures: int) -> datetime:
    return now_of(session) + timedelta(seconds=retry_delay_s(failures))


def _keep(session: Session, tenant_id: str, entries: Sequence[KeptKV]) -> None:
    if not entries:
        return
    by_key = {kv.key: kv for kv in entries}
    rows = [
        {"key": key, "tenant_id": tenant_id, "num_tokens": kv.num_tokens, "num_bytes": kv.num_bytes}
        for key, kv in sorted(by_key.items())
    ]
    for batch in batched(rows):
        session.execute(keep_entries(session.get_bind().dialect.name, batch))
    session.connection().execute(name_kv(), [{"chunk": kv.chunk_id, "key": kv.key} for kv in entries])
    for kv_keys in batched(list(by_key)):
        session.connection().execute(recall_uses(kv_keys))
