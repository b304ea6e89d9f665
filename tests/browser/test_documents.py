"""Documents in the browser: uploaded by drag-and-drop, watched, found, tried again, deleted."""

import re

import httpx
import msgspec
import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import update

from ingest.parts import IngestParts
from ragkv.service.base.tables import DocumentRow
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.browser.visit import Visit
from tests.integration.test_mail_attachments import PLAN, mail, read_all
from tests.support.over_http import ADA, upload

GIF = b"GIF89a is no text"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, max_upload_bytes=100_000)


@pytest.fixture
def collection(page: Page, service: httpx.Client, reader: None) -> Page:
    """The default collection's page, while somebody reads what is uploaded."""
    page.goto("/admin/collections/default")
    return page


def row(page: Page, name: str):
    return page.locator("tr[data-document]").filter(has_text=name)


def sure(page: Page, answer: str) -> None:
    """Give the answer to the question that is open."""
    page.locator("#confirm").get_by_role("button", name=answer, exact=True).click()


class TestUpload:
    def test_dropped_files_are_uploaded_and_become_ready(self, visit: Visit, collection: Page):
        visit.drop(("ada.md", ADA), ("notes.txt", b"The analytical engine was never built."))

        for name in ("ada.md", "notes.txt"):
            expect(collection.locator(".upload").filter(has_text=name)).to_contain_text("ready")
            expect(row(collection, name).locator(".badge")).to_have_text("ready")
        expect(collection.locator("#head")).to_contain_text("2 documents")
        expect(collection.locator("#upload-news")).to_contain_text("ready")

    def test_files_can_be_chosen_too(self, collection: Page):
        collection.locator("#files").set_input_files([{"name": "ada.md", "mimeType": "text/markdown", "buffer": ADA}])

        expect(row(collection, "ada.md").locator(".badge")).to_have_text("ready")

    def test_each_file_that_is_refused_says_why_and_the_others_go_on(self, visit: Visit, collection: Page):
        visit.drop(("large.txt", b"x" * 100_001), ("empty.txt", b""), ("ada.md", ADA))

        expect(collection.locator(".upload.bad").filter(has_text="large.txt")).to_contain_text("too large")
        expect(collection.locator(".upload.bad").filter(has_text="empty.txt")).to_contain_text("empty")
        expect(row(collection, "ada.md").locator(".badge")).to_have_text("ready")

    def test_a_busy_service_gets_the_file_when_it_says(self, visit: Visit, collection: Page):
        busy = {"status": 429, "headers": {"retry-after": "1"}, "json": {"detail": "more than 600 requests a minute"}}
        collection.route("**/v1/documents", lambda route: route.fulfill(**busy), times=1)
        visit.drop(("ada.md", ADA))

        expect(collection.locator(".upload").filter(has_text="ada.md")).to_contain_text("ready")
        visit.expect_fault("429")

    def test_what_happened_while_the_service_was_away_is_caught_up_with(self, visit: Visit, collection: Page):
        collection.route("**/events", lambda route: route.fulfill(status=503), times=1)
        with collection.expect_response(lambda response: response.status == 503):
            collection.reload()
        visit.drop(("ada.md", ADA))

        expect(collection.locator(".upload").filter(has_text="ada.md")).to_contain_text("ready")
        expect(row(collection, "ada.md").locator(".badge")).to_have_text("ready")
        visit.expect_fault("503")

    def test_a_file_that_is_there_already_says_so(self, visit: Visit, collection: Page):
        visit.drop(("ada.md", ADA))
        expect(row(collection, "ada.md").locator(".badge")).to_have_text("ready")
        visit.drop(("again.md", ADA))

        expect(collection.locator(".upload").filter(has_text="again.md")).to_contain_text("already uploaded")

    def test_many_files_at_once_all_arrive(self, visit: Visit, collection: Page):
        visit.drop(*((f"note-{i}.txt", f"Note number {i}.".encode()) for i in range(12)))

        expect(collection.locator(".upload.good")).to_have_count(12)
        expect(collection.locator("#head")).to_contain_text("12 documents")


class TestFailure:
    def test_a_document_that_failed_says_why_and_can_be_tried_again(self, visit: Visit, collection: Page):
        visit.drop(("scan.gif", GIF))
        failed = row(collection, "scan.gif")
        expect(failed.locator(".error")).to_contain_text("it is an image")
        expect(collection.locator(".upload.bad")).to_contain_text("it is an image")

        failed.get_by_role("button", name="Retry").click()

        expect(collection.get_by_text("Queued again.")).to_be_visible()
        expect(failed.locator(".badge")).to_have_text("failed")

    def test_jobs_show_it_too_and_go_on_by_themselves(self, service: httpx.Client, collection: Page):
        collection.goto("/admin/jobs?status=failed")
        expect(collection.get_by_text("No failed jobs.")).to_be_visible()
        upload(service, GIF, "scan.gif")

        line = collection.locator("tr").filter(has_text="scan.gif")
        expect(line.locator(".error")).to_contain_text("it is an image")
        expect(collection.locator("#tab-failed .count")).to_have_text("1")
        line.get_by_role("button", name="Retry").click()
        expect(collection.locator("#tab-failed .count")).to_have_text("2")

    def test_what_is_renewed_keeps_the_focus(self, service: httpx.Client, collection: Page):
        collection.goto("/admin/jobs")
        collection.locator("#tab-done").focus()
        upload(service)

        expect(collection.locator("#tab-done .count")).to_have_text("1")
        expect(collection.locator("#tab-done")).to_be_focused()


class TestList:
    def test_documents_are_found_by_name_and_state(self, service: httpx.Client, collection: Page):
        upload(service, ADA, "ada.md")
        upload(service, GIF, "scan.gif")
        expect(row(collection, "scan.gif").locator(".badge")).to_have_text("failed")

        collection.get_by_label("Part of the name").fill("SCAN")
        collection.keyboard.press("Enter")
        expect(collection.locator("tr[data-document]")).to_have_count(1)
        collection.get_by_label("Status").select_option("ready")
        collection.get_by_role("button", name="Search").click()
        expect(collection.get_by_role("heading", name="Nothing found")).to_be_visible()
        collection.get_by_role("link", name="Show all").click()
        expect(collection.locator("tr[data-document]")).to_have_count(2)

    def test_long_lists_come_in_pages(self, service: httpx.Client, page: Page):
        for i in range(26):
            upload(service, f"Note number {i}.".encode(), f"note-{i}.txt")
        page.goto("/admin/collections/default?name=note")

        expect(page.locator("tr[data-document]")).to_have_count(25)
        page.get_by_role("link", name="Older").click()
        expect(page.locator("tr[data-document]")).to_have_count(1)
        row(page, "note-0.txt").get_by_role("button", name="Delete").click()
        sure(page, "Delete")
        expect(page.get_by_role("heading", name="No more documents")).to_be_visible()
        page.get_by_role("link", name="Newest").click()
        expect(page.locator("tr[data-document]")).to_have_count(25)

    @pytest.mark.parametrize("way", ["Cancel", "Escape"])
    def test_deleting_asks_first(self, service: httpx.Client, collection: Page, way: str):
        upload(service)
        row(collection, "ada.md").get_by_role("button", name="Delete").click()
        expect(collection.locator("#confirm")).to_contain_text("Delete “ada.md”")
        expect(collection.locator("#confirm").get_by_role("button", name="Cancel")).to_be_focused()
        sure(collection, "Cancel") if way == "Cancel" else collection.keyboard.press(way)

        expect(collection.locator("#confirm")).to_be_hidden()
        expect(row(collection, "ada.md")).to_be_visible()

    def test_a_deleted_document_is_gone(self, service: httpx.Client, collection: Page):
        upload(service)
        row(collection, "ada.md").get_by_role("button", name="Delete").click()
        sure(collection, "Delete")

        expect(collection.get_by_role("heading", name="No documents yet")).to_be_visible()
        expect(collection.locator("#head")).to_contain_text("0 documents")
        assert service.get("/v1/documents").json()["items"] == []


class TestDocument:
    @pytest.fixture
    def document(self, visit: Visit, collection: Page) -> Page:
        """The page of one that is ready."""
        visit.drop(("ada.md", ADA))
        expect(row(collection, "ada.md").locator(".badge")).to_have_text("ready")
        row(collection, "ada.md").get_by_role("link").click()
        return collection

    def test_it_is_renamed_and_its_file_replaced(self, visit: Visit, document: Page):
        document.get_by_role("button", name="Rename").click()
        renaming = document.get_by_role("dialog", name="Rename the document")
        renaming.get_by_label("Name").fill("countess.md")
        renaming.get_by_role("button", name="Rename").click()
        expect(document.get_by_role("heading", level=1)).to_have_text("countess.md")

        document.get_by_role("button", name="Replace").click()
        replacing = document.get_by_role("dialog", name="Replace the file")
        file = {"name": "babbage.txt", "mimeType": "text/plain", "buffer": b""}
        replacing.get_by_label("New file").set_input_files(file)
        replacing.get_by_role("button", name="Replace").click()
        expect(replacing.get_by_role("alert")).to_contain_text("empty")
        visit.expect_fault("422")
        replacing.get_by_label("New file").set_input_files(file | {"buffer": b"The analytical engine was never built."})
        replacing.get_by_role("button", name="Replace").click()

        expect(document.get_by_role("heading", level=1)).to_have_text("babbage.txt")
        expect(document.locator(".chunk").first).to_contain_text("The analytical engine was never built.")

    def test_it_shows_its_chunks_and_what_is_kept_of_their_kv(self, document: Page):
        chunk = document.locator(".chunk").first
        expect(chunk).to_contain_text("Ada Lovelace wrote the first program")
        expect(chunk).to_contain_text("KV stored")
        chunk.locator("summary").click()

        expect(chunk.locator("dl")).to_contain_text(re.compile(r"30 layers × \d+ tokens × 3 heads × 64"))
        expect(chunk.locator("dl")).to_contain_text("2 × 10 layers × 9 heads")

    def test_a_place_in_it_is_marked_and_brought_into_sight(self, document: Page):
        text = document.locator(".chunk .text").first.inner_text()
        start = ADA.decode().index("analytical")
        document.goto(document.url + f"?at={start}-{start + len('analytical engine')}")

        expect(document.locator("mark")).to_have_text("analytical engine")
        expect(document.locator("mark")).to_be_in_viewport()
        assert document.locator(".chunk .text").first.inner_text() == text
        document.get_by_role("link", name="Clear highlight").click()
        expect(document.locator("mark")).to_have_count(0)

    def test_it_says_what_was_left_out_of_its_text(self, document: Page, parts: Parts):
        expect(document.locator("#facts")).not_to_contain_text("left out")
        for counts, line in (
            ({"hidden_words": 1, "encoded_chars": 0}, "1 hidden word left out"),
            ({"hidden_words": 0, "encoded_chars": 75_000}, "75,000 characters of encoded files left out"),
            (
                {"hidden_words": 12, "encoded_chars": 75_000},
                "12 hidden words and 75,000 characters of encoded files left out",
            ),
        ):
            with parts.database.writing() as session:
                session.execute(update(DocumentRow).values(**counts))
            document.reload()
            expect(document.locator("#facts .hint")).to_have_text(line)

    def test_the_original_can_be_downloaded(self, document: Page):
        with document.expect_download() as download:
            document.get_by_role("link", name="Original").click()

        assert download.value.suggested_filename == "ada.md"
        assert download.value.path().read_bytes() == ADA

    def test_deleting_it_leads_back_to_its_collection(self, document: Page):
        document.get_by_role("button", name="Delete").click()
        sure(document, "Delete")

        expect(document.get_by_role("heading", name="No documents yet")).to_be_visible()


class TestAttachments:
    def test_a_mail_and_its_attachments_lead_to_each_other_and_go_together(
        self, page: Page, service: httpx.Client, parts: Parts, ingest: IngestParts
    ):
        made = mail("Bridges", plan__md=PLAN, photo__gif=GIF)
        mail_id = upload(service, made.as_bytes(), "bridges.eml").json()["id"]
        page.goto(f"/admin/documents/{mail_id}")
        read_all(ingest)
        attachments = page.locator("#attachments")
        expect(attachments.get_by_role("heading")).to_have_text("Attachments")
        page.get_by_role("button", name="Delete").click()
        expect(page.locator("#confirm")).to_contain_text("2 attachments go with it")
        sure(page, "Cancel")
        page.reload()
        expect(attachments.locator("tbody tr").filter(has_text="photo.gif")).to_contain_text("failed")
        attachments.get_by_role("link", name="plan.md").click()
        expect(page.locator("#facts")).to_contain_text("Attached to")
        page.locator("#facts").get_by_role("link", name="bridges.eml").click()

        page.get_by_role("button", name="Delete").click()
        sure(page, "Delete")
        page.wait_for_url("**/admin/collections/**")
        expect(page.locator("tr[data-document]")).to_have_count(0)
