"""Sign-in at a provider in the browser: the login, the tenants of a person, and one without rights."""

from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from ragkv.service.base.tenants import ensure_collection
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.browser.axe import violations
from tests.browser.test_pages import WINDOWS
from tests.browser.visit import Visit
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OIDCProvider

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
