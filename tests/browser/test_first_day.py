"""A first day in the browser: sign in at the provider, connect a folder, watch it read, ask, see the cited page lit,
correct the answer, evaluate, sign out."""

import re
from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from ragkv.service.data_sources.syncing import sync_next
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.browser.test_sheet import LIT
from tests.browser.test_sign_in import signs_in
from tests.browser.visit import Visit
from tests.support.echo_engine import EchoEngine
from tests.support.made_files import pdf
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OIDCProvider

LINES = [["The first page of the book."], ["The dragon sleeps under the mountain."], ["The end."]]
QUESTION = "Where does the dragon sleep?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A book, and a file that cannot be read."""
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "book.pdf").write_bytes(pdf(LINES))
    (folder / "empty.txt").write_bytes(b"")
    return folder


@pytest.fixture
def settings(settings: Settings, oidc_provider: OIDCProvider, folder: Path) -> Settings:
    return msgspec.structs.replace(
        settings,
        oidc_issuer=oidc_provider.url.replace("127.0.0.1", "localhost"),
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
        oidc_groups="admins=default:admin",
        data_sources_allowed=str(folder.parent),
    )


def test_the_first_day_of_a_person(
    chromium: Browser,
    service: httpx.Client,
    parts: Parts,
    engine: EchoEngine,
    reader: None,
    oidc_provider: OIDCProvider,
    folder: Path,
    request: pytest.FixtureRequest,
):
    oidc_provider.add("ada", "admins")
    engine.words = LINES[1][0].split(" ")
    with Visit.beginning(chromium, str(service.base_url)) as visit:
        page = visit.page
        page.goto("/admin/data-sources")
        signs_in(page, "ada")
        expect(page.locator(".who")).to_have_text("Adaada@example.com")
        connects(page, folder, parts)
        asks_and_sees_the_cited_page(page)
        corrects(page)
        evaluates(page)
        if pictures := request.config.getoption("--screenshots"):
            page.screenshot(path=Path(pictures) / "first-day.png", full_page=True)
        page.goto("/admin/audit")
        expect(page.locator("#audit")).to_contain_text("ada@example.com (ada)")
        expect(page.locator("#audit")).to_contain_text("Create an evaluation")

        page.get_by_role("button", name="Log out").click()
        page.get_by_role("button", name="End session").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        page.goto("/admin/questions")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def connects(page: Page, folder: Path, parts: Parts) -> None:
    """The folder is read while the page is open."""
    page.get_by_role("button", name="Connect a location").click()
    page.get_by_label("Folder or URL").fill(str(folder))
    page.get_by_role("button", name="Connect", exact=True).click()
    source = page.get_by_role("row").filter(has_text=str(folder))
    expect(source.locator(".badge")).to_have_text("waiting")
    sync_next(parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
    expect(source.locator(".badge")).to_have_text("synced")
    page.get_by_role("link", name=str(folder)).click()
    expect(page.get_by_role("row").filter(has_text="book.pdf").locator(".badge")).to_have_text("ready")
    expect(page.get_by_role("row").filter(has_text="empty.txt").locator(".badge")).to_have_text("unreadable")


def asks_and_sees_the_cited_page(page: Page) -> None:
    page.get_by_role("link", name="Playground").click()
    page.get_by_role("textbox", name="Question").fill(QUESTION)
    page.get_by_role("button", name="Ask").click()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Source 1").first.click()
    sheet = opened.value
    expect(sheet.locator("#sheet-title")).to_have_text("Page 2 of 3")
    expect(sheet.locator(LIT).first).to_be_in_viewport()
    sheet.close()


def corrects(page: Page) -> None:
    page.get_by_role("button", name="Bad answer").click()
    page.get_by_label("Corrected answer").fill("Under the mountain.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").get_by_text("Feedback saved.")).to_be_visible()
    page.get_by_role("link", name="Questions").click()
    expect(page.locator("#questions tbody tr")).to_contain_text("Under the mountain.")


def evaluates(page: Page) -> None:
    """Twice: a line takes two points."""
    page.get_by_role("link", name="Evaluations").click()
    expect(page.get_by_role("heading", name="No evaluations yet")).to_be_visible()
    for _ in range(2):
        page.get_by_role("button", name="Start").click()
        expect(page.locator("#evaluation .badge").first).to_have_text("done")
        expect(page.locator("#measured-0")).to_contain_text(QUESTION)
        expect(page.locator("#measured-0 .compared")).to_contain_text(LINES[1][0])
        page.get_by_role("link", name="Evaluations").first.click()
    expect(page.get_by_role("img", name="Gain kept, run by run")).to_be_visible()
    expect(page.locator("#gain-kept")).to_have_text(re.compile(r"[\d.]+|–"))
    expect(page.get_by_role("row").filter(has_text="Fidelity of default").first).to_contain_text(
        "1 from rated questions"
    )
