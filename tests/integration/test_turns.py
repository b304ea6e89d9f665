"""Whose turn it is: tenants take turns, and no document waits for a message, or for another tenant's pile."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
import numpy as np
import pytest
from celery import Celery
from sqlalchemy import event
from sqlalchemy import text as sql_text

from ingest import turn
from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, take_next, work_on
from ingest.turn import READING_PAGES, Interrupted
from ragkv.chunk import Chunk
from ragkv.engine.protocol import Prefill
from ragkv.errors import Unavailable
from ragkv.ids import new_id
from ragkv.kv.rule import KVWhen
from ragkv.observe import logs
from ragkv.observe.traces import CAUSE_HEADER
from ragkv.retrieve.index import Vectors
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.migrate import migrate
from ragkv.service.base.queue import INGEST, QUEUE
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.documents.changes import Queued, retry_failed
from ragkv.service.documents.chunk_statements import chunk_row
from ragkv.service.documents.documents import accept_document, document_view, store_document
from ragkv.service.documents.job_statements import BEGUN_FIRST, LACKS_KV, Others
from ragkv.service.documents.lease import Lease
from ragkv.service.documents.requeue import requeue_stuck, stuck_ids
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.usage import rebuild_missing
from ragkv.service.parts import Parts
from ragkv.service.questions.journal import KVUse
from ragkv.settings import Settings
from tests.integration.filled import add_documents
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import wait_until
from tests.support.scans import DRAGON, GEESE, picture, scanned_pdf
from workers.alive import Pulse
from workers.tasks import AT_ONCE, Ingestion, register_tasks

PILE = 40


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    migrate(database_url)
    database = Database(database_url)
    yield database
    database.close()


def add(database: Database, tenant: str, number: int = 1, status: Status = Status.ACCEPTED) -> list[str]:
    ref = ensure_collection(database, tenant)
    ids = [new_id() for _ in range(number)]
    with database.writing() as session:
        for one in ids:
            session.add(
                DocumentRow(id=one, tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256=one, name=one, num_bytes=1, status=status)
            )  # fmt: skip
            session.flush()
    return ids


def add_chunk(database: Database, document_id: str) -> str:
    with database.writing() as session:
        tenant_id = session.get_one(DocumentRow, document_id).tenant_id
        empty = Vectors(*(np.zeros(0, dtype) for dtype in (np.float32, np.uint32, np.float32)))
        row = chunk_row(tenant_id, Chunk(f"{document_id}:0", document_id, 0, "", "text", 0, 4, None, (1,)), empty)
        session.add(row)
        return row.id


def turns(database: Database, number: int) -> list[str]:
    """What a worker takes, one after the other."""
    leases = [Lease.take_next(database, "worker") for _ in range(number)]
    return [lease.document_id for lease in leases if lease is not None]


class TestOrder:
    def test_a_tenants_pile_delays_anothers_document_by_one(self, database: Database):
        pile = add(database, "busy", PILE)
        (single,) = add(database, "other")

        assert single in turns(database, 2)
        assert turns(database, 3) == pile[1:4], "the oldest first"

    def test_tenants_take_turns_however_many_wait(self, database: Database):
        piles = {name: add(database, name, 4) for name in "abc"}

        taken = turns(database, 13)

        assert len(taken) == 12
        for round_ in (taken[start : start + 3] for start in range(0, 12, 3)):
            assert all(len(set(round_) & set(pile)) == 1 for pile in piles.values())

    def test_what_cannot_be_searched_yet_comes_before_kv_of_the_same_tenant(self, database: Database):
        (searchable,) = add(database, "a", status=Status.SEARCHABLE)
        (begun,) = add(database, "a", status=Status.PARSING)
        (new,) = add(database, "a")

        assert turns(database, 3) == [begun, new, searchable]

    def test_kv_that_answers_lacked_comes_first_among_a_tenants_and_no_sooner_than_the_turn_of_others(
        self, database: Database
    ):
        documents = add(database, "a", 4, Status.SEARCHABLE)
        (other,) = add(database, "b", status=Status.SEARCHABLE)
        once, twice = (add_chunk(database, document_id) for document_id in documents[2:])
        answers = KVUse(database)
        answers.note([once, twice, twice])
        answers.write()

        oldest, _, used_once, used_twice = documents
        by_turn = turns(database, 3)
        assert [document_id for document_id in by_turn if document_id != other] == [used_twice, used_once]
        assert turns(database, 1) == [oldest]

    def test_two_workers_take_two_documents(self, database: Database):
        ids = add(database, "a", 2)

        assert {Lease.take_next(database, owner).document_id for owner in ("one", "two")} == set(ids)
        assert Lease.take_next(database, "three") is None

    def test_a_small_document_overtakes_the_kv_of_all_tenants_unless_kv_is_due(self, database: Database):
        (mine,) = add(database, "a", status=Status.SEARCHABLE)
        (other,) = add(database, "b", status=Status.SEARCHABLE)
        small = add(database, "a", 2)

        assert turns(database, 1) == small[:1]
        due = Lease.take_next(database, "worker", (LACKS_KV, BEGUN_FIRST))
        assert due.document_id in {mine, other}
        assert turns(database, 2)[0] == small[1]

    def test_tenants_take_turns_at_kv_also_while_one_of_them_uploads(self, database: Database):
        mine, other = (add(database, name, 2, Status.SEARCHABLE) for name in "ab")
        uploads = add(database, "a", 4)
        taken = []
        for _ in range(4):
            taken.append(Lease.take_next(database, "worker", (LACKS_KV, BEGUN_FIRST)).document_id)
            assert turns(database, 1)[0] in uploads

        assert [sum(one in taken[start : start + 2] for one in mine) for start in (0, 2)] == [1, 1]
        assert set(taken) == {*mine, *other}

    def test_a_turn_of_kv_ends_for_what_cannot_be_searched_another_tenants_kv_and_kv_that_answers_lacked(
        self, database: Database
    ):
        (mine,) = add(database, "a", status=Status.SEARCHABLE)
        lease = Lease.take(database, mine, "worker")
        (own,) = add(database, "a", status=Status.SEARCHABLE)
        assert lease.others_wait() is Others.NONE

        answers = KVUse(database)
        answers.note([add_chunk(database, own)])
        answers.write()
        assert lease.others_wait() is Others.LACK_KV
        Lease.take(database, own, "another worker")
        assert lease.others_wait() is Others.NONE

        (other,) = add(database, "b", status=Status.SEARCHABLE)
        assert lease.others_wait() is Others.LACK_KV
        Lease.take(database, other, "another worker")
        assert lease.others_wait() is Others.NONE
        add(database, "a")
        assert lease.others_wait() is Others.UNREAD

    def test_a_turn_of_reading_ends_for_other_tenants_and_for_kv(self, database: Database):
        (mine,) = add(database, "a", status=Status.PARSING)
        lease = Lease.take(database, mine, "worker")
        add(database, "a")
        assert lease.others_wait() is Others.NONE

        add(database, "a", status=Status.SEARCHABLE)
        assert lease.others_wait() is Others.LACK_KV
        add(database, "b")
        assert lease.others_wait() is Others.UNREAD


def text(name: str, paragraphs: int = 1) -> io.BytesIO:
    return io.BytesIO(
        f"# {name}\n\n".encode() + b"".join(b"%s wrote note %d.\n\n" % (name.encode(), n) for n in range(paragraphs))
    )


def status(parts: Parts, tenant: str, document_id: str) -> Status:
    return document_view(ensure_collection(parts.database, tenant).tenant_id, document_id, parts.database).status


def shorten(monkeypatch: pytest.MonkeyPatch, **constants: float) -> None:
    """Turns of milliseconds: a batch each."""
    for name, value in ({"LOOK_SECONDS": 0.001} | constants).items():
        monkeypatch.setattr(turn, name, value)


class TestWorker:
    def test_documents_become_searchable_before_kv_is_computed_and_a_pile_delays_another_tenant_by_one(
        self, parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        """Of either kind; through the queue, by the worker's task."""
        monkeypatch.setattr(turn, "KV_SHARE", 0)
        pile = [
            accept_document(parts.default_collection, f"{n}.md", text(f"Pile {n}"), parts.intake).document_id
            for n in range(6)
        ]
        mine = accept_document(
            ensure_collection(parts.database, "other"), "mine.md", text("Mine"), parts.intake
        ).document_id

        work(parts, ingest, messages=2)
        assert status(parts, "other", mine) is Status.SEARCHABLE
        work(parts, ingest, messages=5)
        assert {status(parts, "default", one) for one in pile} == {Status.SEARCHABLE}
        work(parts, ingest, messages=2)
        assert status(parts, "other", mine) is Status.READY

        work(parts, ingest)
        assert {status(parts, "default", one) for one in pile} == {Status.READY}
        assert stuck_ids(parts.database) == []

    def test_a_scan_lets_others_in_between_its_pages(
        self, parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        """The pages that were read stay, and no attempt is counted."""
        shorten(monkeypatch, KV_SHARE=0, READING_SECONDS=0)
        parts.settings = msgspec.structs.replace(parts.settings, kv_when=KVWhen.NEVER)
        body = scanned_pdf([picture(DRAGON), picture(GEESE), picture(DRAGON)])
        scan = store_document(parts.default_collection, "scan.pdf", io.BytesIO(body), parts.intake).document_id
        lease = take_next(ingest)
        small = store_document(
            ensure_collection(parts.database, "other"), "small.md", text("Small"), parts.intake
        ).document_id

        outcomes, done_at_least = [], []

        def watch(stage: str, done: int, total: int) -> None:
            if stage == READING_PAGES and total:
                done_at_least[-1] = min(done, done_at_least[-1])

        while lease:
            done_at_least.append(3)
            outcomes.append((lease.document_id, work_on(lease, ingest, watch, lease.others_wait)))
            lease = take_next(ingest)

        assert [document_id for document_id, _ in outcomes[:3]] == [scan, small, scan]
        assert done_at_least[0] == 0 < done_at_least[2], "it goes on where it ended"
        with parts.database.reading() as session:
            assert session.get_one(DocumentRow, scan).attempts <= 1
            assert session.get_one(DocumentRow, scan).num_tokens > 0

    def test_a_large_document_lets_others_in_between_its_batches(
        self, parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        """What was computed stays, and no attempt is counted."""
        shorten(monkeypatch, TURN_SECONDS=0)
        monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
        ingest.counters = parts.worker_counters
        large = store_document(parts.default_collection, "large.md", text("Large", 40), parts.intake).document_id
        small = store_document(
            ensure_collection(parts.database, "other"), "small.md", text("Small"), parts.intake
        ).document_id

        outcomes = []
        while lease := take_next(ingest):
            outcomes.append((lease.document_id, work_on(lease, ingest, others_wait=lease.others_wait)))

        assert outcomes.index((small, IngestOutcome.READY)) < outcomes.index((large, IngestOutcome.READY))
        assert outcomes.count((large, IngestOutcome.YIELDED)) >= 2
        with parts.database.reading() as session:
            assert session.get_one(DocumentRow, large).attempts <= 1
            tokens = sum(session.get_one(DocumentRow, one).num_tokens for one in (large, small))
        counted = {field: amount for field, amount in parts.worker_counters.read().items() if "tokens:" in field}
        assert counted == {"tokens:computed": tokens, "tokens:reused": 0}, "each token once"

    def test_a_small_file_is_searchable_after_the_batch_of_kv_under_way(
        self, parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        shorten(monkeypatch)
        monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
        large = store_document(parts.default_collection, "large.md", text("Large", 40), parts.intake).document_id
        small, stored_at = list[str](), list[int]()

        def watch(stage: str, done: int, total: int) -> None:
            if stage == "prefill" and done and not small:
                small.append(
                    store_document(parts.default_collection, "small.md", text("Small"), parts.intake).document_id
                )
            if stage == "prefill":
                stored_at.append(done)

        lease = take_next(ingest)
        assert work_on(lease, ingest, watch, lease.others_wait) is IngestOutcome.YIELDED
        assert len(stored_at) == 2, "at once: after the first report and that of one batch"

        lease = take_next(ingest)
        assert lease.document_id == small[0]
        work_on(lease, ingest, watch, lease.others_wait)
        work(parts, ingest, messages=0)
        assert status(parts, "default", small[0]) in {Status.SEARCHABLE, Status.READY}
        assert status(parts, "default", large) is Status.SEARCHABLE

    def test_kv_goes_on_while_small_files_keep_coming(
        self, parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        """Also while there is always one that waits."""
        shorten(monkeypatch)
        monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
        large = store_document(parts.default_collection, "large.md", text("Large", 40), parts.intake).document_id
        turns_of_large = 0
        for n in range(200):
            for part in range(2):
                store_document(parts.default_collection, f"{n}-{part}.md", text(f"Small {n} {part}"), parts.intake)
            lease = take_next(ingest)
            turns_of_large += lease.document_id == large
            work_on(lease, ingest, others_wait=lease.others_wait)
            if status(parts, "default", large) is Status.READY:
                break

        assert status(parts, "default", large) is Status.READY
        assert turns_of_large > 2, "not in one turn"

    def test_alone_a_document_is_read_in_one_turn(self, parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis):
        accepted = accept_document(parts.default_collection, "mine.md", text("Mine"), parts.intake).document_id

        work(parts, ingest, messages=1)

        assert status(parts, "default", accepted) is Status.READY
        assert parts.queue.depth() == 0


class HeldEngine(EchoEngine):
    """Holds the KV of documents back until it is let go."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.prefilling = 0
        self.let_go = threading.Event()
        self.is_away = False

    async def prefill(self, prefill: Prefill) -> None:
        if self.is_away:
            raise Unavailable("the engine is away")
        self.prefilling += 1
        await asyncio.to_thread(self.let_go.wait)
        await super().prefill(prefill)


class TestKVThreads:
    @pytest.fixture
    def held(self, ingest: IngestParts) -> HeldEngine:
        ingest.engine = HeldEngine(ingest.parts.settings)
        return ingest.engine

    @pytest.fixture
    def ingestion(
        self, parts: Parts, ingest: IngestParts, held: HeldEngine, redis_server: EmbeddedRedis
    ) -> Iterator[Ingestion]:
        with closing(Ingestion(ingest, Pulse(parts.heartbeats), first_pause_s=3600)) as ingestion:
            yield ingestion
            held.let_go.set()
            ingestion.stop()

    @pytest.fixture
    def searchable(self, parts: Parts, ingest: IngestParts, ingestion: Ingestion) -> list[str]:
        """Ids of documents that lack KV, one more than there are threads."""
        ids = [store(parts, str(n)) for n in range(AT_ONCE + 1)]
        for _ in ids:
            work_on(take_next(ingest, unread_only=True), ingest, others_wait=lambda: Others.UNREAD)
        return ids

    def test_the_engine_has_the_next_documents_chunks_while_it_computes(
        self, parts: Parts, ingestion: Ingestion, held: HeldEngine, searchable: list[str]
    ):
        for _ in range(AT_ONCE):
            ingestion.turn()
        wait_until(lambda: held.prefilling == AT_ONCE)

        held.let_go.set()
        ingestion.turn()
        wait_until(lambda: {status(parts, "default", one) for one in searchable} == {Status.READY})

    def test_a_document_is_read_while_all_threads_wait_for_the_engine(
        self, parts: Parts, ingestion: Ingestion, held: HeldEngine, searchable: list[str]
    ):
        for _ in range(AT_ONCE):
            ingestion.turn()
        unread = [store(parts, name) for name in ("unread", "too")]
        ingestion.turn()

        assert {status(parts, "default", one) for one in unread} == {Status.SEARCHABLE, Status.ACCEPTED}
        assert held.prefilling <= AT_ONCE

    def test_a_worker_that_stops_gives_the_documents_back(
        self, parts: Parts, ingestion: Ingestion, held: HeldEngine, searchable: list[str]
    ):
        for _ in range(AT_ONCE):
            ingestion.turn()
        ingestion.stop()
        with pytest.raises(Interrupted):
            ingestion.turn()
        held.let_go.set()
        ingestion.close()

        assert parts.queue.depth() == AT_ONCE
        assert [(row.lease_owner, row.attempts) for row in rows(parts, searchable)] == [(None, 0)] * len(searchable)

    def test_an_engine_that_is_away_costs_no_attempt_and_stops_no_reading(
        self, parts: Parts, ingestion: Ingestion, held: HeldEngine, searchable: list[str]
    ):
        held.is_away = True
        for _ in range(AT_ONCE):
            ingestion.turn()
        wait_until(lambda: sum(row.outages for row in rows(parts, searchable)) == AT_ONCE)
        unread = [store(parts, name) for name in ("unread", "too")]

        ingestion.turn()
        assert {status(parts, "default", one) for one in unread} == {Status.SEARCHABLE, Status.ACCEPTED}
        assert [row.attempts for row in rows(parts, searchable)] == [0] * len(searchable)

    def test_a_database_that_goes_away_once_a_document_is_taken_costs_no_attempt(
        self, parts: Parts, ingestion: Ingestion, searchable: list[str], monkeypatch: pytest.MonkeyPatch
    ):
        def fail(lease: Lease, *_: str) -> DocumentRow:
            raise Unavailable("the database is away")

        with monkeypatch.context() as away:
            away.setattr(Lease, "document", fail)
            away.setattr(Lease, "postpone", fail)
            ingestion.stop()  # so that it does not wait
            ingestion.turn()
        assert [row.lease_owner for row in rows(parts, searchable)].count(None) == AT_ONCE

        ingestion.turn()
        ingestion.close()
        assert [(row.lease_owner, row.attempts) for row in rows(parts, searchable)] == [(None, 0)] * len(searchable)
        assert sum(row.outages for row in rows(parts, searchable)) == 1


def store(parts: Parts, name: str) -> str:
    """The id of a document that waits."""
    return store_document(parts.default_collection, f"{name}.md", text(name), parts.intake).document_id


def rows(parts: Parts, document_ids: list[str]) -> list[DocumentRow]:
    with parts.database.reading() as session:
        return [session.get_one(DocumentRow, document_id) for document_id in document_ids]


class TestMessages:
    def test_a_document_whose_message_was_lost_is_queued_also_while_the_queue_is_full(
        self, parts: Parts, redis_server: EmbeddedRedis
    ):
        for n in range(3):
            accept_document(parts.default_collection, f"{n}.md", text(str(n)), parts.intake)
        assert requeue_stuck(parts.database, parts.queue) == ()
        store_document(
            parts.default_collection, "dropped.md", text("dropped"), parts.intake
        )  # as if its message had been lost

        assert len(requeue_stuck(parts.database, parts.queue)) == 1
        assert parts.queue.depth() == 4
        assert requeue_stuck(parts.database, parts.queue) == ()

    @pytest.mark.parametrize(
        ("change", "again"),
        [
            ("status = 'failed'", lambda ref, parts: retry_failed(ref, parts.database, parts.queue)),
            (
                "status = 'searchable', kv_evicted = true",
                lambda ref, parts: rebuild_missing(
                    KVOwner(ref.tenant_id, ref.collection_id), parts.database, parts.kv_store, parts.queue
                ),
            ),
        ],
    )
    def test_many_documents_are_queued_by_few_statements_and_the_sweep_sends_most_of_their_messages(
        self, parts_on_either: Parts, change: str, again: Callable[[object, Parts], Queued]
    ):
        ref, database, queue = parts_on_either.default_collection, parts_on_either.database, parts_on_either.queue
        add_documents(database, ref, 1_200, 1, "d")
        with database.writing() as session:
            session.execute(sql_text(f"UPDATE documents SET {change}"))
        statements: list[str] = []
        event.listen(database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))

        assert again(ref, parts_on_either) == Queued(1_200)
        assert sum(statement.startswith("UPDATE documents") for statement in statements) == 3
        assert len(statements) < 40
        assert again(ref, parts_on_either) == Queued(0)
        assert queue.depth() == 100
        assert len(requeue_stuck(database, queue)) == 1_100

    def test_a_message_too_many_does_no_harm(self, parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis):
        parts.queue.enqueue_ingest("0" * 32)

        work(parts, ingest)

        assert parts.queue.depth() == 0

    def test_the_line_of_a_document_names_its_own_request_whichever_message_woke_the_worker(
        self, parts: Parts, ingest: IngestParts
    ):
        with logs.bound(request_id="first"):
            store_document(parts.default_collection, "a.md", text("a"), parts.intake)
        with logs.bound(request_id="second"):
            store_document(parts.default_collection, "b.md", text("b"), parts.intake)

        causes = [Lease.take_next(parts.database, "worker").cause() for _ in range(2)]
        assert [cause[CAUSE_HEADER] for cause in causes] == ["first", "second"]


def work(parts: Parts, ingest: IngestParts, messages: int = 1_000) -> None:
    """Do what a worker does with the queue's messages, until there are no more."""
    app = Celery("test", broker="memory://", set_as_current=False)
    with closing(Ingestion(ingest, Pulse(parts.heartbeats))) as ingestion:
        register_tasks(app, ingestion)
        for _ in range(messages):
            message = parts.redis.rpop(QUEUE)
            if message is None:
                return
            assert json.loads(message)["headers"]["task"] == INGEST
            app.tasks[INGEST].run("")
