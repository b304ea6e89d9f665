"""Room for documents and their KV: shared out between tenants, and never the whole disk."""

import io
from typing import Any

import msgspec
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import Outcome, ingest_document
from ragkv.catalog.documents import DocumentView, document_view, store_document
from ragkv.catalog.listing import list_chunks
from ragkv.db.kv_entries import kv_bytes_by_tenant
from ragkv.db.tenants import ensure_scope
from ragkv.errors import Conflict, OutOfSpace
from ragkv.parts import Parts
from ragkv.scope import Holder, Scope
from ragkv.status import Status
from ragkv.upkeep.admin import pin
from ragkv.upkeep.room import make_room
from tests.over_http import ADA, Client, assert_problem, upload

ALL = 2**60


@pytest.fixture
def other(parts: Parts) -> Scope:
    return ensure_scope(parts.database, "other")


def setting(parts: Parts, **changes: Any) -> None:
    parts.settings = msgspec.structs.replace(parts.settings, **changes)
    parts.__dict__.pop("files", None)


def ready(parts: Parts, ingest: IngestParts, scope: Scope, name: str, paragraphs: int = 1) -> str:
    document_id = stored(parts, scope, name, paragraphs)
    assert ingest_document(document_id, ingest) is Outcome.READY
    return document_id


def stored(parts: Parts, scope: Scope, name: str, paragraphs: int = 1) -> str:
    body = f"# {name}\n\n" + "".join(f"{name} wrote note {n} about engines and bridges.\n\n" for n in range(paragraphs))
    return store_document(f"{name}.md", io.BytesIO(body.encode()), parts, scope).document_id


def view(parts: Parts, scope: Scope, document_id: str) -> DocumentView:
    return document_view(document_id, parts.database, scope.tenant_id)


def kept(parts: Parts, scope: Scope) -> int:
    with parts.database.reading() as session:
        return dict(session.execute(kv_bytes_by_tenant()).all()).get(scope.tenant_id, 0)


class TestDisk:
    def test_a_nearly_full_disk_takes_no_uploads_and_says_what_to_do(self, client: Client, parts: Parts):
        setting(parts, min_free_bytes=ALL)

        assert_problem(upload(client), 507, "RAGKV_MIN_FREE_BYTES")
        assert client.get("/v1/documents").json()["items"] == []
        setting(parts, min_free_bytes=0)
        assert upload(client).status_code == 202

    def test_what_was_accepted_becomes_searchable_and_ready_once_there_is_room(self, parts: Parts, ingest: IngestParts):
        document_id = stored(parts, parts.scope, "Ada")
        setting(parts, min_free_bytes=ALL)
        for _ in range(5):
            with pytest.raises(OutOfSpace):
                ingest_document(document_id, ingest)
        shown = view(parts, parts.scope, document_id)
        assert (shown.status, kept(parts, parts.scope)) == (Status.SEARCHABLE, 0)
        assert "nearly full" in (shown.error or "")

        setting(parts, min_free_bytes=0)
        assert ingest_document(document_id, ingest) is Outcome.READY


class TestQuotas:
    def test_a_tenant_has_no_more_documents_than_it_may(self, client: Client, parts: Parts):
        setting(parts, max_tenant_documents=1)
        first = upload(client)

        assert_problem(upload(client, ADA + b"More."), 413, "RAGKV_MAX_TENANT_DOCUMENTS")
        assert upload(client).status_code == 200, "the same bytes are no other document"
        client.delete(f"/v1/documents/{first.json()['id']}")
        assert upload(client, ADA + b"More.").status_code == 202

    def test_beyond_its_quota_a_tenants_own_least_used_kv_goes(self, parts: Parts, ingest: IngestParts, other: Scope):
        old, theirs = ready(parts, ingest, parts.scope, "Old"), ready(parts, ingest, other, "Theirs")
        setting(parts, max_tenant_kv_bytes=kept(parts, parts.scope) * 3 // 2)
        new = ready(parts, ingest, parts.scope, "New")

        shown = view(parts, parts.scope, old)
        assert (shown.status, shown.kv_evicted) == (Status.SEARCHABLE, True)
        assert view(parts, parts.scope, new).status is Status.READY
        assert view(parts, other, theirs).status is Status.READY
        assert kept(parts, parts.scope) <= parts.settings.max_tenant_kv_bytes

    def test_a_document_larger_than_the_quota_keeps_what_fits_and_does_not_fail(
        self, parts: Parts, ingest: IngestParts
    ):
        setting(parts, max_tenant_kv_bytes=300 * parts.layout.bytes_per_token, prefill_batch_tokens=200)
        large = stored(parts, parts.scope, "Large", 60)

        assert ingest_document(large, ingest) is Outcome.READY
        shown = view(parts, parts.scope, large)
        assert (shown.status, shown.kv_evicted, shown.error) == (Status.SEARCHABLE, True, None)
        assert 0 < kept(parts, parts.scope) <= parts.settings.max_tenant_kv_bytes
        chunks = list_chunks(parts.database, parts.kv_store, parts.scope.tenant_id, large, 100, None).items
        assert {chunk.kv.state for chunk in chunks} == {"stored", "missing"}, "none is pending: nobody makes it"
        assert ingest_document(large, ingest) is Outcome.SKIPPED, "nothing is tried in vain"

    def test_beyond_the_limit_of_all_the_tenant_that_keeps_most_gives_way(
        self, parts: Parts, ingest: IngestParts, other: Scope
    ):
        """Though the other's was not used for longer."""
        theirs = ready(parts, ingest, other, "Theirs")
        mine = [ready(parts, ingest, parts.scope, name) for name in ("One", "Two", "Three")]
        setting(parts, max_kv_bytes=kept(parts, parts.scope) + kept(parts, other) // 2)
        make_room(parts)

        assert view(parts, other, theirs).status is Status.READY
        assert [view(parts, parts.scope, one).kv_evicted for one in mine] == [True, False, False]


class TestPins:
    def test_pins_count_against_the_quota(self, parts: Parts, ingest: IngestParts):
        first, second = (ready(parts, ingest, parts.scope, name) for name in ("One", "Two"))
        setting(parts, max_tenant_kv_bytes=kept(parts, parts.scope) * 3 // 4)
        pin(Holder(parts.scope.tenant_id, document_id=first), parts, pinned=True)

        with pytest.raises(Conflict, match="RAGKV_MAX_TENANT_KV_BYTES"):
            pin(Holder(parts.scope.tenant_id, document_id=second), parts, pinned=True)
        with pytest.raises(Conflict):
            pin(Holder(parts.scope.tenant_id, collection_id=parts.scope.collection_id), parts, pinned=True)
        pin(Holder(parts.scope.tenant_id, document_id=first), parts, pinned=False)
        pin(Holder(parts.scope.tenant_id, document_id=second), parts, pinned=True)

    def test_without_a_quota_a_tenant_pins_its_fair_share(self, parts: Parts, ingest: IngestParts, other: Scope):
        document_id = ready(parts, ingest, parts.scope, "Mine")
        setting(parts, max_kv_bytes=kept(parts, parts.scope) * 3 // 2)

        with pytest.raises(Conflict):
            pin(Holder(parts.scope.tenant_id, document_id=document_id), parts, pinned=True)
