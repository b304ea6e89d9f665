"""Every page, on a desk, in the dark and on a phone: nothing sticks out, axe-core finds nothing, everything can be
reached by keyboard."""

import re
from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from api.admin.shell import NAVIGATION
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.base.tables import TenantRow
from ragkv.service.data_sources.syncing import sync_next
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.browser.axe import RULES, RULES_OF_COLOUR, violations
from tests.browser.visit import Visit
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import ADA, upload, wait_until

PAGES = (
    *(path for _, path, _ in NAVIGATION),
    "/admin/kv/plan",
    "/admin/collections/default",
    "/admin/documents/{document}",
    "/admin/documents/{titled}",
    "/admin/data-sources/{data_source}",
    "/admin/data-sources/{lost}",
    "/admin/evaluations/{evaluation}",
)
DESK = {"viewport": {"width": 1280, "height": 800}}
DARK = DESK | {"color_scheme": "dark"}
PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
WINDOWS = {"desk": DESK, "dark": DARK, "phone": PHONE}
AXE = {"desk": RULES, "dark": RULES_OF_COLOUR, "phone": RULES}

MISFITS = """() => {
  const wide = [document.documentElement, ...document.querySelectorAll(".table.cards-when-narrow")];
  const squeezed = [...document.querySelectorAll("main .sub")].filter((text) => text.offsetHeight > 5 * text.offsetWidth);
  return [...wide.filter((part) => part.scrollWidth > part.clientWidth), ...squeezed].map((part) => part.outerHTML.slice(0, 200));
}"""
"""What is wider than its room, and text that is squeezed into a column of letters."""

OUTLINE = """() => {
  const focused = document.activeElement;
  if (focused === document.body) return ["body", true];
  const style = getComputedStyle(focused.matches(".sr-only") ? focused.closest(".drop-zone").querySelector("label") : focused);
  return [focused.outerHTML.slice(0, 120), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
}"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return msgspec.structs.replace(settings, data_sources_allowed=str(tmp_path / "inbox"))


@pytest.fixture
def document(service: httpx.Client, ingest: IngestParts, engine: EchoEngine) -> str:
    """A document that is ready, with a rated question about it and a webhook; and another, and a collection with a
    document, a webhook and a change, whose names have no place to break."""
    engine.stitches = True
    collection = {"collection": "y" * 200}
    service.post("/v1/collections", json={"name": collection["collection"]}).raise_for_status()
    upload(service, data=collection)
    service.post("/v1/webhooks", json={"url": "https://example.com/long"} | collection).raise_for_status()
    service.post(f"/v1/collections/{collection['collection']}/kv/rebuild").raise_for_status()
    document_id = str(upload(service).json()["id"])
    upload(service, b"GIF89a", "a-name-without-a-single-place-to-break-" + "x" * 200 + ".gif")
    ingest_document(document_id, ingest)
    asked = service.post("/v1/ask", json={"question": "Who wrote the first program?"}, timeout=60).json()["id"]
    service.put(f"/v1/answers/{asked}/feedback", json={"rating": "down", "correction": "Ada."}).raise_for_status()
    service.post("/v1/webhooks", json={"url": "https://example.com/hook"}).raise_for_status()
    return document_id


@pytest.fixture
def things(document: str, service: httpx.Client, parts: Parts, ingest: IngestParts, tmp_path: Path) -> dict[str, str]:
    """The document, another with a long title, a data source with a file that cannot be read, another whose folder is
    gone, and two evaluations, which make a line. A tenant has a long name."""
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "empty.txt").write_bytes(b"")
    (tmp_path / "inbox" / "note.md").write_bytes(b"# A note")
    locations = [tmp_path / "inbox", tmp_path / "inbox" / ("l" * 200)]
    data_source, lost = [
        service.post("/v1/data-sources", json={"location": str(location)}).json()["id"] for location in locations
    ]
    for _ in locations:
        sync_next(parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
    titled = upload(service, b"# " + b"T" * 300 + b"\n\nWords.").json()["id"]
    ingest_document(titled, ingest)
    with parts.database.writing() as session:
        session.add(TenantRow(name="t" * 200, secret=b"t" * 32))
    for _ in range(2):
        run = service.post("/v1/evaluations", json={"kind": "fidelity"}).json()["id"]
        wait_until(lambda run=run: service.get(f"/v1/evaluations/{run}").json()["run"]["state"] == "done")
    return {"document": document, "titled": titled, "data_source": data_source, "lost": lost, "evaluation": run}


def test_every_page_fits_reads_well_and_says_where_one_is(
    chromium: Browser, service: httpx.Client, things: dict[str, str], request: pytest.FixtureRequest
):
    for name, window in WINDOWS.items():
        with Visit.beginning(chromium, str(service.base_url), **window) as visit:
            page = visit.page
            for path in PAGES:
                response = page.goto(path.format(**things))

                where = f"{path} ({name})"
                assert response is not None
                assert response.status == 200, where
                assert page.evaluate(MISFITS) == [], where
                assert violations(page, AXE[name]) == [], where
                expect(page.get_by_role("heading", level=1)).to_have_count(1)
                expect(page.locator("nav [aria-current=page]").first).to_be_in_viewport()
                assert re.fullmatch(r".+ · ragkv", page.title()), where
                if folder := request.config.getoption("--screenshots"):
                    page.screenshot(path=Path(folder) / f"{path.strip('/').replace('/', '-')[:40]}-{name}.png")


def test_dialogs_answers_and_pages_beside_the_dashboard_pass_axe_too(
    chromium: Browser, service: httpx.Client, document: str
):
    for name, window in WINDOWS.items():
        with Visit.beginning(chromium, str(service.base_url), **window) as visit:
            page = visit.page
            page.goto("/admin/collections")
            page.get_by_role("button", name="New collection").click()
            assert violations(page, AXE[name]) == [], f"dialog ({name})"
            page.goto("/admin/collections/default")
            page.get_by_role("button", name="Delete ada.md").click()
            assert violations(page, AXE[name]) == [], f"question ({name})"
            page.goto("/admin/playground")
            page.get_by_label("Question").fill("Who wrote the first program?")
            page.get_by_role("button", name="Ask").click()
            expect(page.get_by_role("button", name="Bad answer")).to_be_visible()
            assert violations(page, AXE[name]) == [], f"answer ({name})"
            page.goto(f"/admin/documents/{'0' * 32}")
            visit.expect_fault("404")
            assert violations(page, AXE[name]) == [], f"error ({name})"


def test_every_page_can_be_used_by_keyboard(page: Page, things: dict[str, str]):
    """Tab goes round everything, the skip link too, and what has the focus shows it."""
    for path in PAGES:
        page.goto(path.format(**things))
        wanted = page.locator("a[href]:visible, button:enabled:visible, input:visible, select:visible, summary:visible")
        seen = {}
        for _ in range(wanted.count() + 5):
            page.keyboard.press("Tab")
            seen |= dict([page.evaluate(OUTLINE)])
        assert any(html.startswith('<a class="skip"') for html in seen), path
        assert [html for html, outlined in seen.items() if not outlined] == [], path
        assert len(seen) > len(NAVIGATION), path


def test_the_skip_link_leads_past_the_navigation(page: Page):
    page.goto("/admin/settings")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.locator("main")).to_be_focused()


def test_what_is_not_there_is_a_page_with_a_way_back(visit: Visit):
    visit.page.goto(f"/admin/documents/{'0' * 32}")
    visit.expect_fault("404")
    visit.page.get_by_role("link", name="Back to the overview").click()

    expect(visit.page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_names_are_text_whatever_they_look_like(page: Page, service: httpx.Client, document: str):
    upload(service, ADA + b"!", "<img src=x onerror=alert(1)>{{ 7 * 7 }}.md")
    page.goto("/admin/collections/default")

    expect(page.get_by_role("link", name="<img src=x onerror=alert(1)>{{ 7 * 7 }}.md")).to_be_visible()


def test_the_focus_stays_on_its_file_whatever_comes_above_it(
    page: Page, service: httpx.Client, parts: Parts, tmp_path: Path
):
    """The list of a data source's files renews itself."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "b.md").write_bytes(b"# B")
    data_source = service.post("/v1/data-sources", json={"location": str(inbox)}).json()["id"]
    sync_next(parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
    page.goto(f"/admin/data-sources/{data_source}")
    page.get_by_role("link", name="b.md").focus()
    (inbox / "a b.md").write_bytes(b"# A")
    service.post(f"/v1/data-sources/{data_source}/sync", json={}).raise_for_status()
    sync_next(parts.intake, parts.removal, parts.worker_counters, lambda tally: True)

    expect(page.get_by_role("link", name="a b.md")).to_be_visible(timeout=20_000)
    expect(page.get_by_role("link", name="b.md", exact=True)).to_be_focused()
