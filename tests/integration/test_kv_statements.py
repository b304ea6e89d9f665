"""Statements about KV and generations, on SQLite and on a real PostgreSQL."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, timedelta

import pytest
from sqlalchemy import delete, func, select, text, update

from ragkv.ids import utc_now
from ragkv.kv.eviction import EVICTION, HALF_LIFE_S, Entry, EvictionName, known_policy, warmer
from ragkv.service.answer_cache.cache import CacheRule, cache_rule
from ragkv.service.base.database import Database
from ragkv.service.base.tables import ChunkRow, CollectionRow, DocumentRow, KVEntryRow
from ragkv.service.base.tenants import CollectionRef, ensure_collection
from ragkv.service.documents.lease import KeptKV
from ragkv.service.documents.statements import ids_of, stuck_documents
from ragkv.service.kv_admin.entry_statements import (
    KVOwner,
    chunks_by_kv,
    documents_using,
    documents_without_kv,
    entries_of,
    entries_only_of,
    first_to_go,
    keep_entries,
    kv_by,
    kv_by_tenant,
    kv_of,
    lose_readiness,
    orphans,
    recall_uses,
    used,
    used_in_the_future,
)
from ragkv.service.kv_admin.eviction import forget
from ragkv.service.kv_admin.rule_statements import used_without_kv
from ragkv.service.questions.journal import KVUse
from tests.integration.test_db import add_document, store

KEYS = {"a": ("1" * 64, "2" * 64), "b": ("2" * 64, "3" * 64)}
"""Two documents with a chunk in common."""


@pytest.fixture
def ref(database: Database) -> CollectionRef:
    return ensure_collection(database)


@pytest.fixture
def documents(database: Database, ref: CollectionRef) -> dict[str, str]:
    """Two that are ready, by name."""
    made = {}
    for name, keys in KEYS.items():
        made[name] = add_document(database, name)
        lease = store(database, made[name])
        lease.finish([KeptKV(f"{made[name]}:{i}", key, 10, 1000) for i, key in enumerate(keys)], "kv")
    return made


@pytest.mark.parametrize("with_kv", [True, False])
def test_processes_that_write_uses_of_the_same_chunks_at_once_take_turns(migrated_postgres_url: str, *, with_kv: bool):
    """Whatever the order in which each counts them: neither waits for the other for ever."""
    with closing(Database(migrated_postgres_url)) as database:
        ensure_collection(database)
        document_id = add_document(database)
        lease = store(database, document_id)
        one, other = (f"{document_id}:{i}" for i in range(2))
        if with_kv:
            lease.finish([KeptKV(one, KEYS["a"][0], 10, 1000), KeptKV(other, KEYS["a"][1], 10, 1000)], "kv")
        first, second = KVUse(database), KVUse(database)
        first.note([one, other, other])
        second.note([one, one, other])

        with ThreadPoolExecutor() as pool:
            with database.writing() as session:
                session.execute(select(KVEntryRow.key if with_kv else ChunkRow.id).with_for_update())
                writes = [pool.submit(use.write) for use in (first, second)]
                while (session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")) or 0) < 2:
                    time.sleep(0.05)
            for write in writes:
                write.result()

        with database.reading() as session:
            assert session.scalars(select(ChunkRow.kv_uses)).all() == [0 if with_kv else 3] * 2


def test_uses_without_kv_are_counted_anew_once_it_is_there(database: Database, ref: CollectionRef):
    document_id = add_document(database)
    lease = store(database, document_id)
    chunk_ids = [f"{document_id}:{i}" for i in range(2)]
    with database.writing() as session:
        session.execute(used_without_kv(chunk_ids, utc_now(), HALF_LIFE_S, 1))

    lease.keep([KeptKV(chunk_ids[0], KEYS["a"][0], 10, 1000)])

    with database.reading() as session:
        assert session.scalars(select(ChunkRow.kv_uses).order_by(ChunkRow.ordinal)).all() == [0, 1]


def test_sums_count_each_file_once_for_each_holder(database: Database, ref: CollectionRef, documents: dict[str, str]):
    with database.reading() as session:
        for owner, files in (
            (KVOwner(ref.tenant_id), 3),
            (KVOwner(ref.tenant_id, collection_id=ref.collection_id), 3),
            (KVOwner(ref.tenant_id, document_id=documents["a"]), 2),
            (KVOwner("another tenant", document_id=documents["a"]), 0),
        ):
            found, size, tokens, last_used = session.execute(kv_of(owner)).one()
            assert (found, int(size), int(tokens), last_used is None) == (files, 1000 * files, 10 * files, files == 0)
        assert [
            tuple(row) for row in session.execute(kv_by(DocumentRow.collection_id, [ref.collection_id, "0" * 32]))
        ] == [(ref.collection_id, 3, 3000, 30)]
        assert [(name, int(size)) for name, _, size, _ in session.execute(kv_by_tenant())] == [("default", 3000)]
        assert {
            one: int(size) for one, _, size, _ in session.execute(kv_by(DocumentRow.id, [*documents.values()]))
        } == dict.fromkeys(documents.values(), 2000)
        assert session.execute(chunks_by_kv(KVOwner(ref.tenant_id))).one() == (4, 4)


def test_what_others_use_is_not_one_holders_alone(database: Database, ref: CollectionRef, documents: dict[str, str]):
    def keys(statement):
        with database.reading() as session:
            return [key[0] for key, _ in session.execute(statement)]

    assert keys(entries_of(KVOwner(ref.tenant_id, document_id=documents["a"]))) == ["1", "2"]
    assert keys(entries_only_of(KVOwner(ref.tenant_id, document_id=documents["a"]))) == ["1"]
    assert keys(entries_only_of(KVOwner(ref.tenant_id, collection_id=ref.collection_id))) == ["1", "2", "3"]


@pytest.mark.parametrize("policy", EVICTION)
def test_what_was_used_goes_last_and_what_is_pinned_stays(
    database: Database, ref: CollectionRef, documents: dict[str, str], policy: EvictionName
):
    def order() -> str:
        with database.reading() as session:
            found = session.execute(first_to_go(policy, HALF_LIFE_S, ref.tenant_id, 10))
            return "".join(key[0] for key, _ in found)

    with database.writing() as session:
        session.execute(used([f"{documents['a']}:0"], utc_now() + timedelta(minutes=1), HALF_LIFE_S))
    assert order()[-1] == "1"
    with database.writing() as session:
        session.get_one(DocumentRow, documents["b"]).kv_pinned = True
    assert order() == "1"
    with database.writing() as session:
        session.get_one(CollectionRow, ref.collection_id).kv_pinned = True
    assert order() == ""


def test_statements_order_and_count_as_the_policies_do(
    database: Database, ref: CollectionRef, documents: dict[str, str]
):
    """Also while a clock is years off."""
    half_life_s, start, draw = 3600.0, utc_now(), random.Random(7)
    made = {f"{n:064}": (draw.randrange(1, 400), draw.randrange(1000, 9_000_000)) for n in range(40)}
    with database.writing() as session:
        session.execute(delete(KVEntryRow))
        for key, (tokens, size) in made.items():
            session.add(KVEntryRow(key=key, tenant_id=ref.tenant_id, num_tokens=tokens, num_bytes=size))
        session.flush()
        expected = {row.key: row.warm_until for row in session.scalars(select(KVEntryRow))}
        for step in range(120):
            key, times = draw.choice([*made]), draw.randrange(1, 9)
            moment = start + timedelta(minutes=10 * step, days=draw.choice([0] * 9 + [-4000, 300]))
            session.execute(update(ChunkRow).where(ChunkRow.id == f"{documents['a']}:0").values(kv_key=key))
            session.execute(used([f"{documents['a']}:0"], moment, half_life_s, times))
            expected[key] = warmer(expected[key], moment.timestamp(), half_life_s, times)
    with database.reading() as session:
        rows = session.scalars(select(KVEntryRow)).all()
        assert {row.key: row.warm_until for row in rows} == pytest.approx(expected, abs=1e-3)
        for name in EVICTION:
            worth = known_policy(name).worth
            entries = [
                Entry(
                    row.key, row.num_bytes, row.num_tokens, row.num_tokens, row.last_used_at.timestamp(), row.warm_until
                )
                for row in rows
            ]
            ranked = [key for _, key in sorted((worth(half_life_s, entry), entry.key) for entry in entries)]
            found = session.execute(first_to_go(EVICTION[name].name, half_life_s, ref.tenant_id, 100))
            assert [key for key, _ in found] == ranked, name
    with database.writing() as session:
        session.execute(used_in_the_future(start, timedelta(minutes=5), half_life_s))
    with database.reading() as session:
        latest = session.execute(select(func.max(KVEntryRow.last_used_at), func.max(KVEntryRow.warm_until))).one()
    assert latest[0].astimezone(UTC) <= start + timedelta(minutes=5)
    assert latest[1] <= start.timestamp() + 3600 * 10, "a count is what it was, no more"


def test_a_chunk_remembers_how_often_its_kv_was_used_while_it_has_none(
    database: Database, ref: CollectionRef, documents: dict[str, str]
):
    def warmth() -> dict[str, float]:
        with database.reading() as session:
            return {row.key[0]: row.warm_until for row in session.scalars(select(KVEntryRow))}

    now, chunk = utc_now(), f"{documents['a']}:0"
    with database.writing() as session:
        session.execute(used([chunk], now, HALF_LIFE_S, 7))
    before = warmth()["1"]
    with database.writing() as session:
        forget(session, [key * 64 for key in "123"])
        session.execute(used_without_kv([chunk], now, HALF_LIFE_S, 8))
    with database.writing() as session:
        made_again = [{"key": key * 64, "tenant_id": ref.tenant_id, "num_tokens": 1, "num_bytes": 1} for key in "123"]
        session.execute(keep_entries(session.get_bind().dialect.name, made_again))
        session.execute(recall_uses([key * 64 for key in "123"]))

    assert warmth()["1"] == pytest.approx(now.timestamp() + 4 * HALF_LIFE_S, abs=60), "sixteen uses"
    assert max(warmth()["2"], warmth()["3"]) < now.timestamp() + 60 < before


def test_documents_that_lose_kv_are_searchable_and_not_stuck(
    database: Database, ref: CollectionRef, documents: dict[str, str]
):
    with database.writing() as session:
        assert session.scalars(documents_using(["1" * 64])).all() == [documents["a"]]
        session.execute(lose_readiness(["1" * 64]), execution_options={"synchronize_session": False})
    with database.reading() as session:
        assert session.scalars(ids_of(documents_without_kv(KVOwner(ref.tenant_id)))).all() == [documents["a"]]
        assert session.scalars(stuck_documents(utc_now())).all() == []
        assert {row.name: row.status for row in session.scalars(select(DocumentRow))} == {
            "a": "searchable",
            "b": "ready",
        }


def test_entries_that_no_chunk_uses_are_found_by_age_also_while_documents_are_read(
    database: Database, ref: CollectionRef, documents: dict[str, str]
):
    later = utc_now() + timedelta(hours=1)
    add_document(database, "waiting")
    with database.writing() as session:
        session.add(KVEntryRow(key="9" * 64, tenant_id=ref.tenant_id, num_tokens=1, num_bytes=1))
    with database.reading() as session:
        assert session.scalars(orphans(later)).all() == ["9" * 64]
        assert session.scalars(orphans(utc_now() - timedelta(hours=1))).all() == []


def test_a_rule_is_the_collections_own(database: Database, ref: CollectionRef, documents: dict[str, str]):
    assert cache_rule(database, ref.tenant_id, ref.collection_id) is None
    with database.writing() as session:
        session.get_one(CollectionRow, ref.collection_id).cache_answers = True

    rule = cache_rule(database, ref.tenant_id, ref.collection_id)
    assert rule == CacheRule(threshold=0.95, ttl_s=86400, generation=4), "each was made searchable, and ready"
    assert cache_rule(database, "another tenant", ref.collection_id) is None
