"""What is deleted is gone: out of Redis, out of every process's memory, out of the record of questions."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sqlalchemy import event, func, select

from api.background import forgetting_deleted
from api.v1.collections import delete_collection
from ingest.page_views import PageViews
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.answer.question import Answer, Delta, Question
from ragkv.errors import Unavailable
from ragkv.retrieve.retriever import Retriever
from ragkv.service.answer_cache.ring import GONE, AnswerRing, AnswerRoom, RingName, record_type
from ragkv.service.base.database import open_engine
from ragkv.service.base.embedded_redis import BESIDE_ANSWERS_BYTES, EmbeddedRedis
from ragkv.service.base.queue import QUEUE
from ragkv.service.base.redis import connect
from ragkv.service.base.tables import QuestionRow
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.documents.changes import replace_document
from ragkv.service.documents.documents import accept_document, delete_document
from ragkv.service.documents.removal import MemoryKeeper, forget_stale_answers
from ragkv.service.documents.requeue import requeue_stuck
from ragkv.service.parts import Parts
from tests.conftest import lend_models
from tests.support.over_http import ADA, Client, upload
from workers.sweep import Sweeper

QUESTION = "Who wrote the first program?"
SECRET = b"Lovelace"
"""A word of the document and of its answer."""


@pytest.fixture
def collection(client: Client, parts: Parts, ingest: IngestParts) -> CollectionRef:
    """A collection with one document that is ready and one answer that is kept."""
    made = client.post("/v1/collections", json={"name": "papers"}).json()
    client.patch("/v1/collections/papers", json={"answer_cache": {"enabled": True}})
    ingest_document(str(upload(client, data={"collection": "papers"}).json()["id"]), ingest)
    assert client.post("/v1/ask", json={"question": QUESTION, "collection": "papers"}).status_code == 200
    assert SECRET in everything_in_redis(parts)
    return CollectionRef(parts.default_collection.tenant_id, made["id"], b"")


@pytest.fixture
def document(client: Client, collection: CollectionRef) -> str:
    return str(client.get("/v1/documents", params={"collection": "papers"}).json()["items"][0]["id"])


class TestKeptAnswers:
    def test_a_deleted_document_is_quoted_nowhere_in_redis(self, parts: Parts, document: str):
        delete_document(parts.default_collection.tenant_id, document, parts.removal)

        assert SECRET not in everything_in_redis(parts)
        assert noted_bytes(parts) == 0

    def test_nor_is_a_document_that_has_another_file_now(self, parts: Parts, document: str):
        replace_document(
            parts.default_collection.tenant_id, document, "b.md", BytesIO(b"# B\n\nBob."), parts.intake, parts.removal
        )

        assert SECRET not in everything_in_redis(parts)

    def test_an_answer_in_the_making_is_not_kept_after_the_deletion(self, parts: Parts, collection: CollectionRef):
        asyncio.run(delete_collection(collection.tenant_id, collection.collection_id, parts.removal))

        late = RingName(collection.tenant_id, collection.collection_id, "r", 10**6)
        assert not parts.answer_ring.put(late, record(), SECRET, 60)
        assert SECRET not in everything_in_redis(parts)

    @pytest.mark.parametrize("cached", [True, False])
    def test_an_answer_that_ends_after_the_deletion_of_its_document_leaves_nothing(
        self, client: Client, parts: Parts, collection: CollectionRef, document: str, cached: bool
    ):
        client.patch("/v1/collections/papers", json={"answer_cache": {"enabled": cached}})
        question = Question(collection.tenant_id, collection.collection_id, QUESTION)

        async def answer() -> Delta | Answer:
            events = parts.answerer.stream(question)
            await anext(events)
            await asyncio.to_thread(delete_document, collection.tenant_id, document, parts.removal)
            return [event async for event in events][-1]

        assert SECRET in asyncio.run(answer()).text.encode()
        assert SECRET not in everything_in_redis(parts)

    def test_an_answer_that_ends_after_another_document_was_added_takes_feedback(
        self, client: Client, parts: Parts, collection: CollectionRef, ingest: IngestParts
    ):
        question = Question(collection.tenant_id, collection.collection_id, QUESTION, answer_cache=False)

        async def answer() -> None:
            events = parts.answerer.stream(question)
            await anext(events)
            added = await asyncio.to_thread(upload, client, b"# B\n\nBob.", "b.md", data={"collection": "papers"})
            await asyncio.to_thread(ingest_document, str(added.json()["id"]), ingest)
            async for _ in events:
                pass

        asyncio.run(answer())
        assert client.put(f"/v1/answers/{question.id}/feedback", json={"rating": "up"}).status_code == 200

    def test_a_deleted_collection_leaves_no_answer_no_count_and_no_question(
        self, client: Client, parts: Parts, collection: CollectionRef
    ):
        assert questions(parts, collection) == 1
        assert client.delete("/v1/collections/papers").status_code == 204

        assert SECRET not in everything_in_redis(parts)
        assert parts.answer_ring.counts(collection.tenant_id, collection.collection_id) == {}
        assert questions(parts, collection) == 0

    def test_what_redis_could_not_forget_while_it_was_away_goes_with_a_sweep(
        self, parts: Parts, document: str, redis_server: EmbeddedRedis
    ):
        redis_server.stop()
        delete_document(parts.default_collection.tenant_id, document, parts.removal)
        redis_server.start()
        assert SECRET in everything_in_redis(parts)
        Sweeper(parts).sweep()

        assert SECRET not in everything_in_redis(parts)

    def test_answers_of_a_collection_that_did_not_change_stay(self, parts: Parts, collection: CollectionRef):
        assert forget_stale_answers(parts.database, parts.answer_ring) == 0
        assert SECRET in everything_in_redis(parts)

    def test_what_an_older_version_kept_goes_too(self, parts: Parts, redis_server: EmbeddedRedis):
        parts.redis.hset("ragkv:answers:t:c:r:head", mapping={"generation": 1, "put": 1})
        parts.redis.hset("ragkv:answers:t:c:r:bodies", "0", SECRET)

        assert forget_stale_answers(parts.database, parts.answer_ring) == 1
        assert SECRET not in everything_in_redis(parts)


class TestLogs:
    """Files of the data folder in which deleted rows and keys stay until they are written anew."""

    def test_a_deleted_document_is_in_no_file_after_the_next_sweep(
        self, parts: Parts, document: str, redis_server: EmbeddedRedis
    ):
        assert {"redis.aof", "ragkv.sqlite3-wal"} < files_with_secret(parts)
        delete_document(parts.default_collection.tenant_id, document, parts.removal)
        assert "redis.aof" in files_with_secret(parts)
        Sweeper(parts).sweep()

        assert files_with_secret(parts) == set()
        assert not parts.append_log.rewrite(0), "once is enough"

    def test_nor_after_a_stop(self, parts: Parts, document: str, redis_server: EmbeddedRedis):
        delete_document(parts.default_collection.tenant_id, document, parts.removal)
        parts.database.close()
        redis_server.stop()

        assert files_with_secret(parts) == set()

    def test_a_sweep_that_removes_late_answers_takes_them_out_of_the_log(
        self, parts: Parts, document: str, redis_server: EmbeddedRedis
    ):
        redis_server.stop()
        delete_document(parts.default_collection.tenant_id, document, parts.removal)
        redis_server.start()
        assert "redis.aof" in files_with_secret(parts)
        Sweeper(parts).sweep()

        assert files_with_secret(parts) == set()

    def test_without_a_deletion_the_log_of_redis_is_not_rewritten(self, parts: Parts, collection: CollectionRef):
        log = parts.settings.data_dir / "redis.aof"
        before = log.stat().st_ino
        Sweeper(parts).sweep()

        assert log.stat().st_ino == before

    def test_a_deletion_during_a_rewrite_has_another_one_made(
        self, parts: Parts, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        log = parts.append_log
        log.note_deletion()
        rewrite = parts.redis.bgrewriteaof

        def rewrite_and_delete() -> None:
            rewrite()
            log.note_deletion()

        monkeypatch.setattr(parts.redis, "bgrewriteaof", rewrite_and_delete)
        assert log.rewrite(20)
        monkeypatch.undo()

        assert log.rewrite(20) and not log.rewrite(20)

    def test_a_rewrite_that_fails_is_tried_again(self, parts: Parts, redis_server: EmbeddedRedis):
        parts.append_log.note_deletion()
        parts.redis.config_set("dir", "/proc")  # where no file can be made
        assert not parts.append_log.rewrite(20)
        parts.redis.config_set("dir", str(parts.settings.data_dir))

        assert parts.append_log.rewrite(20)

    def test_a_configured_redis_is_left_to_its_operator(self, parts: Parts):
        settings = msgspec.structs.replace(parts.settings, redis_url="redis://example.org")

        assert Parts(settings).append_log is None

    def test_sqlite_overwrites_what_is_deleted_whatever_its_build_does_by_itself(self, tmp_path: Path):
        engine = open_engine(f"sqlite:///{tmp_path}/a.sqlite3")
        event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA secure_delete = OFF"), insert=True)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA secure_delete").scalar() == 1

    def test_a_long_reader_holds_the_log_of_sqlite_and_nobody_else(self, parts: Parts, document: str):
        with parts.database.reading() as session:
            session.scalar(select(func.count()).select_from(QuestionRow))
            delete_document(parts.default_collection.tenant_id, document, parts.removal)
            parts.database.empty_write_ahead_log()
            assert "ragkv.sqlite3-wal" in files_with_secret(parts)
        parts.database.empty_write_ahead_log()

        assert not any(name.startswith("ragkv.sqlite3") for name in files_with_secret(parts))


class TestMemory:
    def test_a_deleted_collection_leaves_this_process(self, parts: Parts, collection: CollectionRef):
        assert parts.retriever.held()
        asyncio.run(delete_collection(collection.tenant_id, collection.collection_id, parts.removal))

        assert parts.retriever.held() == [] and points_of(parts.retriever) == 0

    def test_what_another_process_deleted_leaves_this_one(
        self, parts: Parts, other: Parts, collection: CollectionRef, document: str
    ):
        delete_document(collection.tenant_id, document, parts.removal)
        keeper = MemoryKeeper(other.removal)
        assert points_of(other.retriever) == 1
        keeper.forget_deleted()
        assert points_of(other.retriever) == 0 and other.retriever.held()

        asyncio.run(delete_collection(collection.tenant_id, collection.collection_id, parts.removal))
        keeper.forget_deleted()
        assert other.retriever.held() == []

    def test_the_running_service_does_so_by_itself(self, parts: Parts, other: Parts, collection: CollectionRef):
        asyncio.run(delete_collection(collection.tenant_id, collection.collection_id, parts.removal))
        page_views, page = PageViews(other), (other.files.path(collection.tenant_id, "0" * 64), 1, 100)
        page_views._kept.keep(page, b"png", 3)

        async def serve() -> None:
            async with forgetting_deleted(other.removal, page_views, interval_s=0.01)(None):  # type: ignore[arg-type]
                while other.retriever.held() or page_views._kept.get(page):  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.01)

        asyncio.run(asyncio.wait_for(serve(), 20))

    def test_a_process_that_never_searched_builds_nothing_for_it(self, parts: Parts):
        MemoryKeeper(parts.removal).forget_deleted()

        assert parts.removal.retriever() is None


class TestRoom:
    """Bodies of 1,000 bytes, records of 56: room for 10 answers of a tenant, 15 of all."""

    @pytest.fixture
    def ring(self, parts: Parts, redis_server: EmbeddedRedis) -> AnswerRing:
        return AnswerRing(parts.redis, AnswerRoom(tenant=10 * 1056, all=15 * 1056))

    def test_a_tenants_answers_stay_within_its_room_and_the_collection_unused_for_longest_goes(
        self, ring: AnswerRing, parts: Parts
    ):
        fill(ring, "t", "a", 4)
        fill(ring, "t", "b", 4)
        ring.records(name_of("t", "a"), 4)  # used again
        fill(ring, "t", "c", 4)

        assert [len(ring.records(name_of("t", one), 4)) for one in "abc"] == [4, 0, 4]
        assert noted_bytes(parts, "tenant:t") == noted_bytes(parts) == bytes_in_redis(parts) == 8 * 1056

    def test_one_tenant_takes_nothing_of_anothers_while_there_is_room(self, ring: AnswerRing, parts: Parts):
        fill(ring, "other", "x", 5)
        fill(ring, "t", "a", 100)

        assert noted_bytes(parts, "tenant:t") <= 10 * 1056
        assert len(ring.records(name_of("other", "x"), 4)) == 5

    def test_all_together_stay_within_theirs(self, ring: AnswerRing, parts: Parts):
        for tenant in "abcdef":
            fill(ring, tenant, "c", 5)

        assert noted_bytes(parts) == bytes_in_redis(parts) == 15 * 1056
        assert ring.collections() == [("d", "c"), ("e", "c"), ("f", "c")]

    def test_the_same_place_again_counts_once(self, ring: AnswerRing, parts: Parts, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("ragkv.service.answer_cache.ring.MAX_ENTRIES", 3)
        fill(ring, "t", "a", 8)

        assert noted_bytes(parts, "tenant:t") == bytes_in_redis(parts) == 3 * 1056

    def test_what_expired_is_no_longer_counted_once_it_is_dropped(self, ring: AnswerRing, parts: Parts):
        fill(ring, "t", "a", 4)
        parts.redis.delete(*name_of("t", "a").keys())
        ring.forget("t", "a", GONE)

        assert noted_bytes(parts, "tenant:t") == noted_bytes(parts) == 0
        assert ring.collections() == []


class TestFullRedis:
    def test_the_embedded_one_is_bounded_and_drops_nothing_by_itself(self, parts: Parts, redis_server: EmbeddedRedis):
        found = parts.redis.config_get("maxmemory*")

        assert found["maxmemory-policy"] == "noeviction"
        assert int(found["maxmemory"]) == BESIDE_ANSWERS_BYTES + parts.settings.max_answer_bytes

    def test_what_is_there_stays_answers_are_not_kept_and_uploads_wait(self, parts: Parts, redis_server: EmbeddedRedis):
        token = parts.sessions.begin("key")
        kept = name_of(parts.default_collection.tenant_id, parts.default_collection.collection_id)
        assert parts.answer_ring.put(kept, record(), b"body", 60)
        accept_document(parts.default_collection, "a.md", BytesIO(ADA), parts.intake)
        parts.redis.config_set("maxmemory", 1)
        try:
            with pytest.raises(Unavailable):
                parts.answer_ring.put(kept, record(), b"body", 60)
            later = accept_document(parts.default_collection, "b.md", BytesIO(b"Bob."), parts.intake).document_id
            assert parts.sessions.holder(token) == "key"
            assert parts.redis.llen(QUEUE) == 1
            parts.rate_limit.take("key")
            assert parts.rate_limit.passed_unchecked == 1
            assert parts.answer_ring.forget(kept.tenant_id, kept.collection_id, GONE) == 1
        finally:
            parts.redis.config_set("maxmemory", 0)
        parts.redis.delete(QUEUE)
        assert later in requeue_stuck(parts.database, parts.queue)


@pytest.fixture
def other(parts: Parts, loaded: IngestParts, collection: CollectionRef) -> Iterator[Parts]:
    """Another process of the service, that has searched the collection."""
    with closing(Parts(parts.settings)) as other:
        lend_models(other, loaded)
        assert other.retriever.search(collection.tenant_id, collection.collection_id, QUESTION, 3, 2)
        yield other


def everything_in_redis(parts: Parts) -> bytes:
    """All keys with their values."""
    client = connect(parts.settings)
    readers = {
        b"string": client.get, b"hash": client.hgetall, b"zset": lambda key: client.zrange(key, 0, -1),
        b"list": lambda key: client.lrange(key, 0, -1), b"set": client.smembers,
    }  # fmt: skip
    with closing(client):
        return b"\n".join(key + repr(readers[client.type(key)](key)).encode() for key in client.scan_iter())


def files_with_secret(parts: Parts) -> set[str]:
    """Names of the data folder's files that contain a word of the document."""
    paths = (path for path in parts.settings.data_dir.rglob("*") if path.is_file())
    return {path.name for path in paths if SECRET in path.read_bytes()}


def bytes_in_redis(parts: Parts) -> int:
    """Of records and bodies."""
    records = [parts.redis.strlen(key) for key in parts.redis.keys("ragkv:answers:*:records")]
    bodies = [len(body) for key in parts.redis.keys("ragkv:answers:*:bodies") for body in parts.redis.hvals(key)]
    return sum(records) + sum(bodies)


def noted_bytes(parts: Parts, of: str = "all") -> int:
    """Bytes of kept answers as the ring counts them."""
    return int(parts.redis.hget("ragkv:answers:sizes", of) or 0)


def points_of(retriever: Retriever) -> int:
    collections = retriever._index._collections.values()
    return sum(segment.num_shown for collection in collections for segment in collection.segments)


def questions(parts: Parts, collection: CollectionRef) -> int:
    with parts.database.reading() as session:
        mine = QuestionRow.collection_id == collection.collection_id
        return int(session.scalar(select(func.count()).select_from(QuestionRow).where(mine)) or 0)


def name_of(tenant_id: str, collection_id: str) -> RingName:
    return RingName(tenant_id, collection_id, "r", 1)


def fill(ring: AnswerRing, tenant_id: str, collection_id: str, answers: int) -> None:
    for _ in range(answers):
        ring.put(name_of(tenant_id, collection_id), record(), bytes(1000), 60)


def record() -> bytes:
    return np.zeros(1, record_type(4)).tobytes()
