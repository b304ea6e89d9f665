"""Coming in and leaving."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.sync_api import Page, expect

from ragkv.service.keys.keys import issue_key
from ragkv.service.parts import Parts
from tests.browser.visit import Visit

FORGE = """url => fetch(url, {
  method: "POST", mode: "no-cors", credentials: "include", headers: { "Content-Type": "text/plain" }, body: '{"name": "forged"}'
})"""


class Page200(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><p>elsewhere")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another server of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page200) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_without_keys_there_is_nothing_to_log_in_to(page: Page):
    page.goto("/admin/login")

    expect(page.get_by_text("The service is open.")).to_be_visible()
    expect(page.get_by_role("button", name="Log out")).to_have_count(0)


def test_the_login_leads_to_the_page_that_was_asked_for(page: Page, key: str):
    page.goto("/admin/jobs?status=failed")
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    assert page.url.endswith("/admin/jobs?status=failed")


@pytest.mark.parametrize(("scope", "reason"), [(None, "unknown API key"), ("read", "lacks the scope admin")])
def test_a_key_that_will_not_do_is_refused_with_the_reason(visit: Visit, key: str, parts: Parts, scope, reason: str):
    given = issue_key(parts.default_collection.tenant_id, "x", [scope], parts.database).key if scope else "rk_wrong"
    visit.page.goto("/admin/login")
    visit.page.get_by_label("API key").fill(given)
    visit.page.get_by_role("button", name="Log in").click()

    expect(visit.page.get_by_role("alert")).to_contain_text(reason)
    expect(visit.page.get_by_label("API key")).to_be_focused()
    visit.expect_fault("403" if scope else "401")


def test_scripts_do_not_see_the_sessions_cookie(logged_in: Page):
    assert logged_in.evaluate("document.cookie") == ""


def test_logging_out_ends_it(logged_in: Page):
    logged_in.get_by_role("button", name="Log out").click()
    logged_in.get_by_label("API key").wait_for()
    logged_in.goto("/admin/keys")

    assert "/admin/login?next=" in logged_in.url


def test_a_session_that_ended_meanwhile_leads_to_the_login_but_not_before_what_was_typed_is_copied(
    visit: Visit, logged_in: Page, parts: Parts
):
    logged_in.goto("/admin/collections")
    parts.redis.delete(*parts.redis.keys("ragkv:session:*"))
    logged_in.get_by_role("button", name="New collection").click()
    logged_in.get_by_label("Name").fill("papers")
    logged_in.get_by_role("button", name="Create collection").click()
    logged_in.locator("#confirm").get_by_role("button", name="Cancel").click()
    expect(logged_in.locator("#make .error")).to_have_text("Your session has ended.")
    expect(logged_in.get_by_label("Name")).to_have_value("papers")
    visit.expect_fault("401")

    logged_in.get_by_role("button", name="Create collection").click()
    logged_in.locator("#confirm").get_by_role("button", name="Log in").click()
    logged_in.get_by_label("API key").wait_for()
    assert "next=%2Fadmin%2Fcollections" in logged_in.url
    visit.expect_fault("401")


def test_a_link_on_another_site_leads_to_the_page_with_a_session_and_to_the_login_without(
    logged_in: Page, parts: Parts, service: httpx.Client
):
    """The session's cookie does not go along with such a link."""
    link = f'<!doctype html><link rel=icon href=data:,><a href="{service.base_url}/admin/jobs?status=failed">Jobs</a>'
    logged_in.route("http://wiki.example/", lambda route: route.fulfill(body=link, content_type="text/html"))
    logged_in.goto("http://wiki.example/")
    logged_in.get_by_role("link").click()
    expect(logged_in.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    assert logged_in.url.endswith("/admin/jobs?status=failed")

    parts.redis.delete(*parts.redis.keys("ragkv:session:*"))
    logged_in.goto("http://wiki.example/")
    logged_in.get_by_role("link").click()
    logged_in.get_by_label("API key").wait_for()
    assert logged_in.url.endswith("/admin/login?next=%2Fadmin%2Fjobs%3Fstatus%3Dfailed")


def test_a_page_of_another_origin_cannot_use_the_session(
    visit: Visit, logged_in: Page, service: httpx.Client, key: str, elsewhere: str
):
    """One of the same machine, which browsers call the same site: the cookie goes along, and that is not enough."""
    logged_in.goto(elsewhere)
    with logged_in.expect_response("**/v1/collections") as response:
        logged_in.evaluate(FORGE, f"{service.base_url}/v1/collections")

    assert response.value.status == 403, "401 would say that it was not recognised"
    names = [item["name"] for item in service.get("/v1/collections", headers={"x-api-key": key}).json()["items"]]
    assert names == ["default"]
    visit.faults.clear()
