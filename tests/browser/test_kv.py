"""The KV store's page in the browser: seen, evicted, rebuilt, pinned, verified."""

import httpx
import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import select

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.base.tables import ChunkRow
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.parts import Parts
from tests.browser.visit import Visit
from tests.support.over_http import upload


@pytest.fixture
def store(page: Page, service: httpx.Client, ingest: IngestParts) -> Page:
    """The page of a store with the KV of one document."""
    ingest_document(str(upload(service).json()["id"]), ingest)
    page.goto("/admin/kv")
    return page


def document(page: Page) -> Locator:
    return page.locator("tr[data-document]")


def test_bytes_are_drawn_by_tier_and_collection(store: Page):
    disk = store.locator(".kv-row").filter(has_text="Disk")

    expect(disk.locator(".kv-value")).to_contain_text("KiB")
    expect(disk.locator("rect.of-stitched")).to_have_count(1)
    expect(store.locator("tr[data-collection]")).to_contain_text("default")


def test_an_evicted_document_says_so_and_is_rebuilt(store: Page, parts: Parts, ingest: IngestParts):
    document(store).get_by_role("button", name="Evict").click()
    expect(store.locator("#confirm-text")).to_contain_text("It keeps answering")
    store.locator("#confirm").get_by_role("button", name="Evict", exact=True).click()

    expect(store.locator("#toasts")).to_contain_text("removed")
    expect(document(store).locator("[data-status=evicted]")).to_be_visible()
    expect(document(store).get_by_role("button", name="Evict")).to_have_count(0)
    document(store).get_by_role("button", name="Rebuild").click()
    expect(document(store).locator("[data-status=searchable]")).to_be_visible()
    for document_id in stuck_ids(parts.database):
        ingest_document(document_id, ingest)
    store.reload()
    expect(document(store).locator("[data-status=ready]")).to_be_visible()


def test_a_document_without_room_for_all_of_its_kv_says_so_everywhere_and_is_rebuilt(
    visit: Visit, page: Page, parts: Parts, reader: None, monkeypatch: pytest.MonkeyPatch
):
    few = 300 * parts.layout.bytes_per_token
    parts.settings = msgspec.structs.replace(parts.settings, max_tenant_kv_bytes=few)
    monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
    page.goto("/admin/collections/default")
    visit.drop(("large.md", b"# Notes\n\n" + b"".join(b"Ada wrote note %d about it.\n\n" % n for n in range(60))))
    expect(page.locator(".upload.good")).to_contain_text("searchable, without room for all of its KV")

    page.goto("/admin/kv")
    expect(document(page).locator("[data-status=partial]")).to_be_visible()
    document(page).get_by_role("link").click()
    expect(page.locator("#chunks .badge").filter(has_text="stored").first).to_be_visible()
    expect(page.locator("#chunks .badge").filter(has_text="missing").first).to_be_visible()
    parts.settings = msgspec.structs.replace(parts.settings, max_tenant_kv_bytes=0)
    page.get_by_role("button", name="Rebuild").click()
    expect(page.locator("#facts .badge")).to_have_text("ready")
    expect(page.get_by_role("button", name="Rebuild")).to_have_count(0)


def test_an_eviction_that_nobody_confirms_does_not_happen(store: Page):
    document(store).get_by_role("button", name="Evict").click()
    store.keyboard.press("Escape")

    expect(document(store).locator("[data-status=ready]")).to_be_visible()


def test_a_document_and_a_collection_are_pinned_and_let_go_again(store: Page):
    for row in (document(store), store.locator("tr[data-collection]")):
        row.get_by_role("button", name="Pin").click()
        expect(row).to_contain_text("pinned")
        row.get_by_role("button", name="Unpin").click()
        expect(row).not_to_contain_text("pinned")


def test_a_verification_that_breaks_off_says_so(store: Page):
    stream = {
        "body": 'event: progress\ndata: {"checked":0,"total":2,"bytes":0}\n\n',
        "content_type": "text/event-stream",
    }
    store.route("**/v1/kv/verify", lambda route: route.fulfill(**stream))
    store.get_by_role("button", name="Verify all").click()

    expect(store.locator("#verification")).to_contain_text("Not verified: all KV The connection broke")
    expect(store.locator("#verification-bar")).to_be_hidden()


def test_a_verification_says_what_it_found(store: Page, parts: Parts):
    store.get_by_role("button", name="Verify all").click()
    expect(store.locator("#verification")).to_contain_text("all intact")

    with parts.database.reading() as session:
        path = parts.kv_store.path(session.scalars(select(ChunkRow.kv_key)).first() or "")
    path.write_bytes(path.read_bytes()[:-8] + b"gremlins")
    store.get_by_role("button", name="Verify all").click()
    expect(store.locator("#verification")).to_contain_text("1 damaged file removed. Rebuild 1 document")
    expect(document(store).locator("[data-status=evicted]")).to_be_visible()
