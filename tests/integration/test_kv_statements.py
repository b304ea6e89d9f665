"""Statements about KV and generations, on SQLite and on a real PostgreSQL."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from ragkv.answer_cache.cache import CacheRule
from ragkv.clock import utc_now
from ragkv.db.collections import cache_rule
from ragkv.db.database import Database
from ragkv.db.documents import stuck_documents
from ragkv.db.ingestion import KeptKV
from ragkv.db.kv_entries import (
    chunks_by_kv,
    documents_using,
    entries_of,
    entries_only_of,
    evicted_documents,
    kv_by_collection,
    kv_by_document,
    kv_by_tenant,
    kv_of,
    least_recently_used,
    lose_readiness,
    orphans,
    used,
)
from ragkv.db.tables import CollectionRow, DocumentRow, KVEntryRow
from ragkv.db.tenants import ensure_collection
from ragkv.tenancy import CollectionRef, KVOwner
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
        assert [tuple(map(int, sums)) for _, *sums in session.execute(kv_by_collection(ref.tenant_id))] == [
            (3, 3000, 30)
        ]
        assert [(name, int(size)) for name, _, size, _ in session.execute(kv_by_tenant())] == [("default", 3000)]
        assert {
            one: int(size) for one, _, size, _ in session.execute(kv_by_document([*documents.values()]))
        } == dict.fromkeys(documents.values(), 2000)
        assert session.execute(chunks_by_kv(KVOwner(ref.tenant_id))).one() == (4, 4)


def test_what_others_use_is_not_one_holders_alone(database: Database, ref: CollectionRef, documents: dict[str, str]):
    def keys(statement):
        with database.reading() as session:
            return [key[0] for key, _ in session.execute(statement)]

    assert keys(entries_of(KVOwner(ref.tenant_id, document_id=documents["a"]))) == ["1", "2"]
    assert keys(entries_only_of(KVOwner(ref.tenant_id, document_id=documents["a"]))) == ["1"]
    assert keys(entries_only_of(KVOwner(ref.tenant_id, collection_id=ref.collection_id))) == ["1", "2", "3"]


def test_the_least_recently_used_go_first_and_what_is_pinned_stays(
    database: Database, ref: CollectionRef, documents: dict[str, str]
):
    def order() -> str:
        with database.reading() as session:
            return "".join(key[0] for key, _ in session.execute(least_recently_used(ref.tenant_id, 10)))

    with database.writing() as session:
        session.execute(used([f"{documents['a']}:0"], utc_now() + timedelta(minutes=1)))
    assert order() == "231"
    with database.writing() as session:
        session.get_one(DocumentRow, documents["b"]).kv_pinned = True
    assert order() == "1"
    with database.writing() as session:
        session.get_one(CollectionRow, ref.collection_id).kv_pinned = True
    assert order() == ""


def test_documents_that_lose_kv_are_searchable_and_not_stuck(
    database: Database, ref: CollectionRef, documents: dict[str, str]
):
    with database.writing() as session:
        assert session.scalars(documents_using(["1" * 64])).all() == [documents["a"]]
        session.execute(lose_readiness(["1" * 64]), execution_options={"synchronize_session": False})
    with database.reading() as session:
        assert session.scalars(evicted_documents(KVOwner(ref.tenant_id))).all() == [documents["a"]]
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
