"""Rules for KV: a collection's format, and KV from the upload on, from the nth use on, or never."""

import io

import pytest
from sqlalchemy import select

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.catalog.documents import DocumentView, document_view, store_document
from ragkv.db.jobs import KEEP
from ragkv.db.tables import ChunkRow, JobRow
from ragkv.kv_format import KVFormat
from ragkv.kv_use import KVUse
from ragkv.parts import Parts
from ragkv.status import Status
from ragkv.tenancy import KVOwner
from ragkv.upkeep.admin import held_kv, rebuild_document
from ragkv.upkeep.eviction import evict
from ragkv.upkeep.rules import KVRulePatch, change_rule, keep_hot
from tests.over_http import Client, assert_problem

LONG = b"# Engines\n\n" + b"".join(
    b"Engine number %d stood in hall %d of the works.\n\n" % (i, i % 7) for i in range(60)
)
RULE = "/v1/collections/default/kv/rule"


@pytest.fixture
def owner(parts: Parts) -> KVOwner:
    return KVOwner(parts.default_collection.tenant_id, collection_id=parts.default_collection.collection_id)


def stored(parts: Parts) -> str:
    return store_document(parts.default_collection, "engines.md", io.BytesIO(LONG), parts).document_id


def view(parts: Parts, document_id: str) -> DocumentView:
    return document_view(parts.default_collection.tenant_id, document_id, parts.database)


def chunk_ids(parts: Parts, document_id: str) -> list[str]:
    with parts.database.reading() as session:
        mine = select(ChunkRow.id).where(ChunkRow.document_id == document_id).order_by(ChunkRow.ordinal)
        return list(session.scalars(mine))


def use(parts: Parts, *chunk_ids: str) -> None:
    """As answers do."""
    noted = KVUse(parts.database)
    noted.note(chunk_ids)
    noted.write()


def formats(parts: Parts) -> set[KVFormat]:
    """Of all chunks' KV that is used."""
    with parts.database.reading() as session:
        keys = session.scalars(select(ChunkRow.kv_key).where(ChunkRow.kv_key.is_not(None))).all()
    return {parts.kv_store.shape(key).format for key in keys}


class TestFormat:
    def test_a_collection_has_another_than_the_service(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        change_rule(owner, KVRulePatch(format="int4"), parts)
        ingest_document(stored(parts), ingest)

        assert formats(parts) == {KVFormat.INT4}

    def test_what_there_is_is_converted_and_back_again(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        for wanted, kv_format in (("int8", KVFormat.INT8), ("default", KVFormat.BF16)):
            change_rule(owner, KVRulePatch(format=wanted), parts)
            assert view(parts, document_id).status is Status.SEARCHABLE
            assert ingest_document(document_id, ingest) is IngestOutcome.READY
            assert formats(parts) == {kv_format}

    def test_documents_of_other_collections_stay_as_they_are(self, parts: Parts, ingest: IngestParts, client: Client):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        client.post("/v1/collections", json={"name": "papers"})

        assert client.patch("/v1/collections/papers/kv/rule", json={"format": "int8"}).status_code == 200
        assert view(parts, document_id).status is Status.READY


class TestNever:
    def test_no_kv_is_computed_until_somebody_asks_for_it(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        change_rule(owner, KVRulePatch(when="never"), parts)
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        seen = view(parts, document_id)
        assert (seen.status, seen.kv_evicted, held_kv(owner, parts.database).files) == (Status.SEARCHABLE, True, 0)
        use(parts, *chunk_ids(parts, document_id) * 9)
        assert keep_hot(parts) == 0

        rebuild_document(owner.tenant_id, document_id, parts)
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        assert view(parts, document_id).status is Status.READY

    def test_a_later_rule_has_it_computed(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        change_rule(owner, KVRulePatch(when="never"), parts)
        document_id = stored(parts)
        ingest_document(document_id, ingest)

        change_rule(owner, KVRulePatch(when="default"), parts)
        ingest_document(document_id, ingest)
        assert view(parts, document_id).status is Status.READY


class TestNthUse:
    @pytest.fixture
    def document_id(self, parts: Parts, ingest: IngestParts, owner: KVOwner) -> str:
        change_rule(owner, KVRulePatch(when="nth_use", uses=2), parts)
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        return document_id

    def test_the_chunk_that_was_used_so_often_gets_kv_and_no_other(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner, document_id: str
    ):
        hot, lukewarm, *_ = chunk_ids(parts, document_id)
        use(parts, hot, lukewarm)
        assert keep_hot(parts) == 0
        use(parts, hot)
        assert keep_hot(parts) == 1
        with parts.database.reading() as session:
            assert KEEP in session.scalars(select(JobRow.kind)).all()
        ingest_document(document_id, ingest)

        held = held_kv(owner, parts.database)
        assert (held.stored_chunks, held.chunks > 2) == (1, True)
        assert view(parts, document_id).status is Status.SEARCHABLE
        assert keep_hot(parts) == 0
        use(parts, lukewarm)
        assert keep_hot(parts) == 1
        ingest_document(document_id, ingest)
        assert held_kv(owner, parts.database).stored_chunks == 2

    def test_a_document_whose_chunks_are_all_used_is_ready(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner, document_id: str
    ):
        use(parts, *chunk_ids(parts, document_id) * 2)
        keep_hot(parts)
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        assert view(parts, document_id).status is Status.READY

    def test_evicted_kv_is_to_be_used_so_often_again(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner, document_id: str
    ):
        hot = chunk_ids(parts, document_id)[0]
        use(parts, hot, hot)
        keep_hot(parts)
        ingest_document(document_id, ingest)
        use(parts, *[hot] * 9)
        evict(owner, parts)

        assert keep_hot(parts) == 0
        use(parts, hot, hot)
        assert keep_hot(parts) == 1

    def test_what_had_no_room_is_not_tried_at_every_sweep(
        self, parts: Parts, ingest: IngestParts, document_id: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("ingest.keep_kv.make_room_for", lambda wanted, parts: False)
        hot = chunk_ids(parts, document_id)[0]
        use(parts, hot, hot)
        keep_hot(parts)
        ingest_document(document_id, ingest)

        assert keep_hot(parts) == 0


class TestOverHTTP:
    def test_it_is_shown_and_changed(self, client: Client):
        assert client.get(RULE).json() == {"format": "bf16", "when": "upload", "uses": 2, "write": "through", "own": []}
        changed = client.patch(RULE, json={"format": "int4", "when": "nth_use", "uses": 5, "write": "back"}).json()
        own = ["format", "when", "uses", "write"]
        assert changed == {"format": "int4", "when": "nth_use", "uses": 5, "write": "back", "own": own}
        assert client.patch(RULE, json={"when": "default", "uses": 0, "write": "default"}).json()["own"] == ["format"]
        shown = {"format": "int4", "when": "upload", "uses": 2, "write": "through", "own": ["format"]}
        assert client.get(RULE).json() == shown

    @pytest.mark.parametrize(
        "body", [{"format": "int3"}, {"when": "soon"}, {"uses": -1}, {"uses": 1001}, {"write": "never"}, {"kind": 1}]
    )
    def test_what_is_no_rule_is_refused(self, client: Client, body: dict[str, object]):
        assert_problem(client.patch(RULE, json=body), 400)
        assert client.get(RULE).json()["own"] == []

    def test_a_collection_that_is_not_there(self, client: Client):
        assert_problem(client.get("/v1/collections/nothing/kv/rule"), 404)
