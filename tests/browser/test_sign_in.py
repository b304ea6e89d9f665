"""A first day in the browser: sign in at the provider, upload, ask, see the cited page lit, correct the answer, sign out."""

from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from ragkv.db.tenants import ensure_collection
from ragkv.parts import Parts
from ragkv.settings import Settings
from tests.browser.axe import violations
from tests.browser.test_pages import WINDOWS
from tests.browser.test_sheet import LIT
from tests.browser.visit import Visit
from tests.echo_engine import EchoEngine
from tests.made_files import pdf
from tests.oidc_provider import CLIENT_ID, CLIENT_SECRET, OIDCProvider

LINES = [["The first page of the book."], ["The dragon sleeps under the mountain."], ["The end."]]
PROVIDERS_STYLES = "https://cdn.jsdelivr.net/**"


@pytest.fixture
def settings(settings: Settings, oidc_provider: OIDCProvider) -> Settings:
    """The provider is called localhost: for the browser that is another site than 127.0.0.1."""
    return msgspec.structs.replace(
        settings,
        oidc_issuer=oidc_provider.url.replace("127.0.0.1", "localhost"),
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
        oidc_groups="admins=default:admin; red=red:admin",
    )


@pytest.fixture
def parts(parts: Parts) -> Parts:
    """With a tenant beside the default one."""
    ensure_collection(parts.database, "red")
    return parts


def signs_in(page: Page, subject: str) -> None:
    page.context.route(PROVIDERS_STYLES, lambda route: route.fulfill(body=""))
    page.get_by_role("link", name="Sign in with localhost").click()
    page.get_by_placeholder("sub").fill(subject)
    page.get_by_role("button", name="Authorize").click()
    page.get_by_role("button", name="Log out").wait_for()


def test_the_first_day_of_a_person(
    chromium: Browser, service: httpx.Client, engine: EchoEngine, reader: None, oidc_provider: OIDCProvider
):
    oidc_provider.add("ada", "admins")
    engine.words = LINES[1][0].split(" ")
    with Visit.beginning(chromium, str(service.base_url)) as visit:
        page = visit.page
        page.goto("/admin/collections/default")
        signs_in(page, "ada")
        expect(page.get_by_role("heading", name="default", level=1)).to_be_visible()
        expect(page.locator(".who")).to_have_text("Adaada@example.com")
        visit.drop(("book.pdf", pdf(LINES)))
        row = page.locator("tr[data-document]").filter(has_text="book.pdf")
        expect(row.locator(".badge")).to_have_text("ready")

        page.get_by_role("link", name="Playground").click()
        page.get_by_role("textbox", name="Question").fill("Where does the dragon sleep?")
        page.get_by_role("button", name="Ask").click()
        with page.context.expect_page() as opened:
            page.get_by_role("link", name="Source 1").first.click()
        sheet = opened.value
        expect(sheet.locator("#sheet-title")).to_have_text("Page 2 of 3")
        expect(sheet.locator(LIT).first).to_be_in_viewport()
        sheet.close()

        page.get_by_role("button", name="Bad answer").click()
        page.get_by_label("Corrected answer").fill("Under the mountain.")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").get_by_text("Feedback saved.")).to_be_visible()
        page.goto("/admin/questions")
        expect(page.locator("#questions tbody tr")).to_contain_text("Under the mountain.")
        page.goto("/admin/audit")
        expect(page.locator("#audit")).to_contain_text("ada@example.com (ada)")

        page.get_by_role("button", name="Log out").click()
        page.get_by_role("button", name="End session").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        page.goto("/admin/questions")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_the_login_and_the_switch_of_tenants_are_there_for_everybody(
    chromium: Browser, service: httpx.Client, oidc_provider: OIDCProvider, request: pytest.FixtureRequest
):
    """On a desk, in the dark, on a phone; by keyboard; for axe-core."""
    oidc_provider.add("ada", "red", "admins")
    for name, window in WINDOWS.items():
        with Visit.beginning(chromium, str(service.base_url), **window) as visit:
            page = visit.page
            page.goto("/admin/login")
            assert violations(page) == [], name
            picture(page, f"sign-in-{name}", request)
            page.keyboard.press("Tab")
            expect(page.get_by_role("link", name="Sign in with localhost")).to_be_focused()
            signs_in(page, "ada")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            page.get_by_label("Tenant").select_option("red")
            page.get_by_label("Tenant").press("Tab")
            with page.expect_navigation():
                page.keyboard.press("Enter")
            expect(page.get_by_label("Tenant").locator("option:checked")).to_have_text("red")
            assert violations(page) == [], name
            picture(page, f"signed-in-{name}", request)


def test_a_person_without_rights_reads_why(visit: Visit, oidc_provider: OIDCProvider, request: pytest.FixtureRequest):
    oidc_provider.add("eve", "strangers")
    page = visit.page
    page.goto("/admin/login")
    page.context.route(PROVIDERS_STYLES, lambda route: route.fulfill(body=""))
    page.get_by_role("link", name="Sign in with localhost").click()
    page.get_by_placeholder("sub").fill("eve")
    page.get_by_role("button", name="Authorize").click()

    expect(page.get_by_role("alert")).to_contain_text("none of your groups has access here")
    visit.expect_fault("403")
    assert violations(page) == []
    picture(page, "refused", request)


def picture(page: Page, name: str, request: pytest.FixtureRequest) -> None:
    if folder := request.config.getoption("--screenshots"):
        page.screenshot(path=Path(folder) / f"{name}.png")
