"""A citation in the browser: its page, slide or text with the words lit, on a desk, in the dark and on a phone."""

from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from ingest.parse import parse
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.answer.sentences import sentences
from ragkv.kv.rule import KVWhen
from ragkv.settings import Settings
from tests.browser.axe import violations
from tests.browser.test_pages import PHONE, WINDOWS
from tests.browser.visit import Visit
from tests.support.made_files import pdf, pptx, shape, slide
from tests.support.over_http import upload
from tests.support.scans import DRAGON, GEESE, encoded, picture

SAMPLE = Path(__file__).parents[2] / "docs" / "sample" / "documents" / "aviation-and-space.pdf"
LIT = ".paper rect"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Without KV: it shows nothing here."""
    return msgspec.structs.replace(settings, kv_when=KVWhen.NEVER)


@pytest.fixture
def sample(service: httpx.Client, ingest: IngestParts) -> str:
    """The link of a citation in the sample's text: its page has boxes."""
    document_id = str(upload(service, SAMPLE.read_bytes(), SAMPLE.name).json()["id"])
    ingest_document(document_id, ingest)
    chunks = service.get(f"/v1/documents/{document_id}/chunks").json()["items"]
    chunk = next(chunk for chunk in chunks[3:] if len(sentences(chunk["text"])) > 1)
    start, end = sentences(chunk["text"])[1]
    return f"/admin/documents/{document_id}?at={chunk['start'] + start}-{chunk['start'] + end}"


def test_a_citation_opens_its_page_with_the_words_lit(
    chromium: Browser, service: httpx.Client, sample: str, request: pytest.FixtureRequest
):
    for name, window in WINDOWS.items():
        with Visit.beginning(chromium, str(service.base_url), **window) as visit:
            page = visit.page
            page.goto(sample)
            page.wait_for_load_state("networkidle")

            expect(page.locator(LIT).first).to_be_in_viewport()
            expect(page.locator("mark").first).to_be_focused()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert violations(page) == [], name
            picture, text = page.locator(".paper").bounding_box(), page.locator("mark").first.bounding_box()
            beside = picture["x"] + picture["width"] <= text["x"]
            assert beside != (window is PHONE)
            if folder := request.config.getoption("--screenshots"):
                page.screenshot(path=Path(folder) / f"page-{name}.png")


def test_pages_are_turned_by_keyboard_and_the_mark_is_kept(page: Page, service: httpx.Client, ingest: IngestParts):
    lines = [["The first page of the book."], ["The dragon sleeps under the mountain."], ["The end."]]
    document_id = upload(service, pdf(lines), "book.pdf").json()["id"]
    ingest_document(document_id, ingest)
    start = len(lines[0][0]) + 2
    page.goto(f"/admin/documents/{document_id}?at={start}-{start + 17}")
    expect(page.locator("#sheet-title")).to_have_text("Page 2 of 3")
    expect(page.locator(LIT)).to_have_count(1)

    page.get_by_role("link", name="Page 3").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#sheet-title")).to_have_text("Page 3 of 3")
    expect(page.locator(LIT)).to_have_count(0)
    page.get_by_role("link", name="page 2", exact=True).click()
    expect(page.locator(LIT)).to_have_count(1)
    page.get_by_role("link", name="Clear highlight").click()
    page.get_by_role("link", name="Pages").click()
    expect(page.locator("#sheet-title")).to_have_text("Page 1 of 3")


def test_a_citation_of_an_image_opens_it_with_the_words_lit(
    page: Page, service: httpx.Client, ingest: IngestParts, request: pytest.FixtureRequest
):
    frames = encoded(picture(DRAGON), "TIFF", save_all=True, append_images=[picture(GEESE)])
    document_id = upload(service, frames, "letter.tiff").json()["id"]
    ingest_document(document_id, ingest)
    text = "\n".join(DRAGON) + "\n\n" + "\n".join(GEESE)
    start, end = text.index("south"), text.index(" in spring")
    page.goto(f"/admin/documents/{document_id}?at={start}-{end}")
    page.wait_for_load_state("networkidle")

    expect(page.locator("#sheet-title")).to_have_text("Page 2 of 2")
    expect(page.locator(LIT)).to_have_count(2)
    if folder := request.config.getoption("--screenshots"):
        page.screenshot(path=Path(folder) / "page-image.png")


def test_a_citation_of_a_slide_opens_its_text_with_the_words_lit(
    chromium: Browser, service: httpx.Client, ingest: IngestParts, request: pytest.FixtureRequest
):
    """Other formats without pages to look at likewise, see test_citations_by_format.py. A long text scrolls to them."""
    lines = [f"Point {number} of the plan." for number in range(200)]
    deck = pptx([slide(shape("Rivers", "title")), slide(shape("Plans", "title") + shape("\n".join(lines)))])
    document_id = upload(service, deck, "plans.pptx").json()["id"]
    ingest_document(document_id, ingest)
    start = parse("plans.pptx", deck).text.index(lines[150])
    for name, window in WINDOWS.items():
        with Visit.beginning(chromium, str(service.base_url), **window) as visit:
            page = visit.page
            page.goto(f"/admin/documents/{document_id}?at={start}-{start + len(lines[150])}")

            expect(page.locator("#sheet-title")).to_have_text("Slide 2")
            expect(page.locator("#sheet")).to_contain_text("plans: Plans")
            lit = page.locator("#lit-text")
            expect(lit).to_have_text(lines[150])
            outer, inner = page.locator(".page-text").bounding_box(), lit.bounding_box()
            assert outer["y"] <= inner["y"] <= outer["y"] + outer["height"], name
            expect(page.locator("mark")).to_have_text(lines[150])
            expect(page.locator("mark")).to_be_in_viewport()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert violations(page) == [], name
            if folder := request.config.getoption("--screenshots"):
                page.screenshot(path=Path(folder) / f"page-slide-{name}.png")


def test_a_page_that_cannot_be_shown_says_why(page: Page, service: httpx.Client, ingest: IngestParts):
    document_id = upload(service, pdf([["words"]]), "book.pdf").json()["id"]
    ingest_document(document_id, ingest)
    page.goto(f"/admin/documents/{document_id}?page=2")

    expect(page.locator("#sheet")).to_contain_text("there is no page 2")
    expect(page.locator(".chunk")).to_have_count(1)
