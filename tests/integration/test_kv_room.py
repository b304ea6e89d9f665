"""Room for documents and their KV: shared out between tenants, and never the whole disk."""

import io
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document, take_next, work_on
from ingest.turn import BatchSize
from ragkv.errors import Conflict, OutOfSpace
from ragkv.ids import utc_now
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, KVEntryRow
from ragkv.service.base.tenants import CollectionRef, ensure_collection
from ragkv.service.documents.documents import DocumentView, delete_document, document_view, store_document
from ragkv.service.documents.listing import list_chunks
from ragkv.service.kv_admin.entry_statements import KVOwner, kv_bytes_by_tenant, used
from ragkv.service.kv_admin.eviction import check_pins, make_room
from ragkv.service.kv_admin.usage import pin
from ragkv.service.parts import Parts
from tests.integration.filled import add_documents, add_files
from tests.support.over_http import ADA, Client, assert_problem, upload

ALL = 2**60


@pytest.fixture
def other(parts: Parts) -> CollectionRef:
    return ensure_collection(parts.database, "other")


def setting(parts: Parts, **changes: Any) -> None:
    parts.settings = msgspec.structs.replace(parts.settings, **changes)
    parts.__dict__.pop("files", None)


def ready(parts: Parts, ingest: IngestParts, ref: CollectionRef, name: str, paragraphs: int = 1) -> str:
    document_id = stored(parts, ref, name, paragraphs)
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    return document_id


def stored(parts: Parts, ref: CollectionRef, name: str, paragraphs: int = 1) -> str:
    body = f"# {name}\n\n" + "".join(f"{name} wrote note {n} about engines and bridges.\n\n" for n in range(paragraphs))
    return store_document(ref, f"{name}.md", io.BytesIO(body.encode()), parts.intake).document_id


def view(parts: Parts, ref: CollectionRef, document_id: str) -> DocumentView:
    return document_view(ref.tenant_id, document_id, parts.database)


def kept(parts: Parts, ref: CollectionRef) -> int:
    with parts.database.reading() as session:
        return dict(session.execute(kv_bytes_by_tenant()).all()).get(ref.tenant_id, 0)


def next_turn(ingest: IngestParts) -> IngestOutcome | None:
    """One turn of a worker; None when no document waits."""
    lease = take_next(ingest)
    return None if lease is None else work_on(lease, ingest, others_wait=lease.others_wait)


class TestDisk:
    def test_a_nearly_full_disk_takes_no_uploads_and_says_what_to_do(self, client: Client, parts: Parts):
        setting(parts, min_free_bytes=ALL)

        assert_problem(upload(client), 507, "RAGKV_MIN_FREE_BYTES")
        assert client.get("/v1/documents").json()["items"] == []
        setting(parts, min_free_bytes=0)
        assert upload(client).status_code == 202

    def test_what_was_accepted_becomes_searchable_and_ready_once_there_is_room(self, parts: Parts, ingest: IngestParts):
        document_id = stored(parts, parts.default_collection, "Ada")
        setting(parts, min_free_bytes=ALL)
        for _ in range(5):
            with pytest.raises(OutOfSpace):
                ingest_document(document_id, ingest)
        shown = view(parts, parts.default_collection, document_id)
        assert (shown.status, kept(parts, parts.default_collection)) == (Status.SEARCHABLE, 0)
        assert "nearly full" in (shown.error or "")

        setting(parts, min_free_bytes=0)
        assert ingest_document(document_id, ingest) is IngestOutcome.READY


class TestQuotas:
    def test_a_tenant_has_no_more_documents_than_it_may(self, client: Client, parts: Parts):
        setting(parts, max_tenant_documents=1)
        first = upload(client)

        assert_problem(upload(client, ADA + b"More."), 413, "RAGKV_MAX_TENANT_DOCUMENTS")
        assert upload(client).status_code == 200, "the same bytes are no other document"
        client.delete(f"/v1/documents/{first.json()['id']}")
        assert upload(client, ADA + b"More.").status_code == 202

    def test_beyond_its_documents_a_tenant_may_replace_files_and_keep_others(self, client: Client, parts: Parts):
        first = upload(client).json()["id"]
        upload(client, ADA + b"More.")
        setting(parts, max_tenant_documents=1)

        other = {"file": ("a.md", ADA + b"Another.")}
        assert client.put(f"/v1/documents/{first}", files=other).status_code == 202
        assert client.post("/v1/files", files=other, data={"purpose": "assistants"}).status_code == 200
        assert upload(client, ADA + b"Last.").status_code == 413

    def test_files_that_are_attached_count_as_documents(self, client: Client, parts: Parts):
        def kept_file(body: bytes) -> str:
            form = {"files": {"file": ("a.md", body)}, "data": {"purpose": "assistants"}}
            return str(client.post("/v1/files", **form).json()["id"])

        one, twin, two = kept_file(ADA), kept_file(ADA), kept_file(ADA + b"More.")
        store = f"/v1/vector_stores/{parts.default_collection.collection_id}"
        setting(parts, max_tenant_documents=1)

        assert client.post(f"{store}/file_batches", json={"file_ids": [one, two]}).status_code == 413
        assert client.post(f"{store}/files", json={"file_id": one}).status_code == 200
        assert client.post(f"{store}/files", json={"file_id": twin}).status_code == 200, "it is no other document"
        refused = client.post(f"{store}/files", json={"file_id": two})
        assert refused.status_code == 413 and "RAGKV_MAX_TENANT_DOCUMENTS" in refused.json()["error"]["message"]
        assert {file["id"] for file in client.get(f"{store}/files").json()["data"]} == {one, twin}

    def test_beyond_its_quota_a_tenants_own_least_used_kv_goes(
        self, parts: Parts, ingest: IngestParts, other: CollectionRef
    ):
        old, theirs = ready(parts, ingest, parts.default_collection, "Old"), ready(parts, ingest, other, "Theirs")
        setting(parts, max_tenant_kv_bytes=kept(parts, parts.default_collection) * 3 // 2)
        new = ready(parts, ingest, parts.default_collection, "New")

        shown = view(parts, parts.default_collection, old)
        assert (shown.status, shown.kv_evicted) == (Status.SEARCHABLE, True)
        assert view(parts, parts.default_collection, new).status is Status.READY
        assert view(parts, other, theirs).status is Status.READY
        assert kept(parts, parts.default_collection) <= parts.settings.max_tenant_kv_bytes

    def test_a_document_larger_than_the_quota_keeps_what_fits_and_does_not_fail(
        self, parts: Parts, ingest: IngestParts, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
        setting(parts, max_tenant_kv_bytes=300 * parts.layout.bytes_per_token)
        large = stored(parts, parts.default_collection, "Large", 60)

        assert ingest_document(large, ingest) is IngestOutcome.READY
        shown = view(parts, parts.default_collection, large)
        assert (shown.status, shown.kv_evicted, shown.error) == (Status.SEARCHABLE, True, None)
        assert 0 < kept(parts, parts.default_collection) <= parts.settings.max_tenant_kv_bytes
        chunks = list_chunks(parts.default_collection.tenant_id, large, 100, None, parts.database, parts.kv_store).items
        assert {chunk.kv.state for chunk in chunks} == {"stored", "missing"}, "none is pending: nobody makes it"
        assert ingest_document(large, ingest) is IngestOutcome.SKIPPED, "nothing is tried in vain"

    def test_beyond_the_limit_of_all_the_tenant_that_keeps_most_gives_way(
        self, parts: Parts, ingest: IngestParts, other: CollectionRef
    ):
        """Though the other's was not used for longer."""
        theirs = ready(parts, ingest, other, "Theirs")
        mine = [ready(parts, ingest, parts.default_collection, name) for name in ("One", "Two", "Three")]
        setting(parts, max_kv_bytes=kept(parts, parts.default_collection) + kept(parts, other) // 2)
        make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters)

        assert view(parts, other, theirs).status is Status.READY
        assert [view(parts, parts.default_collection, one).kv_evicted for one in mine] == [True, False, False]

    def test_documents_of_two_tenants_that_do_not_fit_together_keep_as_much_each(
        self, parts: Parts, ingest: IngestParts, other: CollectionRef, monkeypatch: pytest.MonkeyPatch
    ):
        """A worker takes them in turns, and what it computes for one never costs the other more than its share."""
        for name in ("LOOK_SECONDS", "TURN_SECONDS"):
            monkeypatch.setattr(f"ingest.turn.{name}", 0.001)
        monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
        whole = ready(parts, ingest, parts.default_collection, "Whole", 60)
        limit = kept(parts, parts.default_collection) * 6 // 5
        delete_document(parts.default_collection.tenant_id, whole, parts.removal)
        setting(parts, max_kv_bytes=limit)
        for ref in (parts.default_collection, other):
            stored(parts, ref, "Large", 60)
        turns = [turn for _ in range(40) if (turn := next_turn(ingest)) is not None]

        assert turns.count(IngestOutcome.READY) == 2 < len(turns) < 40
        amounts = sorted(kept(parts, ref) for ref in (parts.default_collection, other))
        assert limit // 3 < amounts[0] <= amounts[1] < limit * 2 // 3

    def test_a_tenant_whose_share_is_less_than_a_batch_gets_it_all_the_same(
        self, parts: Parts, ingest: IngestParts, other: CollectionRef, monkeypatch: pytest.MonkeyPatch
    ):
        ready(parts, ingest, parts.default_collection, "Large", 60)
        limit = kept(parts, parts.default_collection)
        setting(parts, max_kv_bytes=limit)
        monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 100_000)
        ingest.batch_size = BatchSize(100_000)
        ready(parts, ingest, other, "As large", 60)

        assert kept(parts, other) > limit // 8


class TestEviction:
    @pytest.fixture
    def parts(self, parts_on_either: Parts) -> Parts:
        return parts_on_either

    @pytest.mark.parametrize(("eviction", "first"), [("cost", "Rare"), ("lfu", "Rare"), ("lru", "Often")])
    def test_the_policy_says_what_goes(self, parts: Parts, ingest: IngestParts, eviction: str, first: str):
        """Of a small document that was used often a while ago, and a larger one that was used once since."""
        names = {"Often": 1, "Rare": 2}
        made = {name: ready(parts, ingest, parts.default_collection, name, size) for name, size in names.items()}
        setting(parts, eviction=eviction, eviction_half_life_s=3600.0)
        now = utc_now()
        with parts.database.writing() as session:
            for name, times, hours in (("Often", 9, 2), ("Rare", 1, 1)):
                chunks = session.scalars(select(ChunkRow.id).where(ChunkRow.document_id == made[name])).all()
                session.execute(
                    update(KVEntryRow)
                    .where(KVEntryRow.key.in_(select(ChunkRow.kv_key).where(ChunkRow.id.in_(chunks))))
                    .values(warm_until=0)
                )
                session.execute(used(chunks, now - timedelta(hours=hours), 3600.0, times))
        setting(parts, max_kv_bytes=kept(parts, parts.default_collection) - 1)
        before = parts.worker_counters.read().get("evicted:budget:files", 0)
        freed = make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters)

        assert [name for name in made if view(parts, parts.default_collection, made[name]).kv_evicted] == [first]
        assert freed.files == 1 == parts.worker_counters.read()["evicted:budget:files"] - before


class TestPins:
    def test_pins_count_against_the_quota(self, parts: Parts, ingest: IngestParts):
        first, second = (ready(parts, ingest, parts.default_collection, name) for name in ("One", "Two"))
        setting(parts, max_tenant_kv_bytes=kept(parts, parts.default_collection) * 3 // 4)
        pin(KVOwner(parts.default_collection.tenant_id, document_id=first), parts.database, parts.settings, pinned=True)

        with pytest.raises(Conflict, match="RAGKV_MAX_TENANT_KV_BYTES"):
            pin(
                KVOwner(parts.default_collection.tenant_id, document_id=second),
                parts.database,
                parts.settings,
                pinned=True,
            )
        with pytest.raises(Conflict):
            pin(
                KVOwner(parts.default_collection.tenant_id, collection_id=parts.default_collection.collection_id),
                parts.database,
                parts.settings,
                pinned=True,
            )
        pin(
            KVOwner(parts.default_collection.tenant_id, document_id=first), parts.database, parts.settings, pinned=False
        )
        pin(
            KVOwner(parts.default_collection.tenant_id, document_id=second), parts.database, parts.settings, pinned=True
        )

    def test_two_pins_at_once_count_against_the_quota_together(
        self, parts_on_either: Parts, monkeypatch: pytest.MonkeyPatch
    ):
        parts, tenant_id = parts_on_either, parts_on_either.default_collection.tenant_id
        add_documents(parts.database, parts.default_collection, documents=2, chunks=1, prefix="d")
        add_files(parts)
        setting(parts, max_tenant_kv_bytes=kept(parts, parts.default_collection) - 1)
        checks = iter(range(2))

        def pin_one(document_id: str) -> None:
            pin(KVOwner(tenant_id, document_id=document_id), parts.database, parts.settings, pinned=True)

        with ThreadPoolExecutor(1) as others:
            pinned: list[Future[None]] = []

            def overtaken(*checked: Any) -> None:
                check_pins(*checked)
                if next(checks) == 0:
                    pinned.append(others.submit(pin_one, "d1"))
                    wait(pinned, timeout=2)

            monkeypatch.setattr("ragkv.service.kv_admin.usage.check_pins", overtaken)
            pin_one("d0")
            with pytest.raises(Conflict, match="RAGKV_MAX_TENANT_KV_BYTES"):
                pinned[0].result()

    def test_without_a_quota_a_tenant_pins_its_fair_share(
        self, parts: Parts, ingest: IngestParts, other: CollectionRef
    ):
        document_id = ready(parts, ingest, parts.default_collection, "Mine")
        setting(parts, max_kv_bytes=kept(parts, parts.default_collection) * 3 // 2)

        with pytest.raises(Conflict):
            pin(
                KVOwner(parts.default_collection.tenant_id, document_id=document_id),
                parts.database,
                parts.settings,
                pinned=True,
            )
