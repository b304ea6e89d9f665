"""Collections, keys, webhooks and settings in the browser."""

import re

import httpx
from playwright.sync_api import Page, Route, expect

from tests.browser.visit import Visit
from tests.support.over_http import upload


def new_key(page: Page) -> str:
    """The key that the page shows, this once."""
    expect(page.locator("#new-key-value")).to_have_text(re.compile("rk_.+"))
    return page.locator("#new-key-value").inner_text()


class TestCollections:
    def test_one_is_made_renamed_and_deleted(self, logged_in: Page, service: httpx.Client, key: str):
        logged_in.goto("/admin/collections")
        logged_in.get_by_role("button", name="New collection").click()
        logged_in.get_by_label("Name").fill("papers")
        logged_in.keyboard.press("Enter")
        logged_in.get_by_role("link", name="papers").click()

        logged_in.get_by_role("button", name="Rename").click()
        expect(logged_in.get_by_label("Name", exact=True)).to_be_focused()
        logged_in.get_by_label("Name", exact=True).fill("letters")
        logged_in.keyboard.press("Enter")
        expect(logged_in.get_by_role("heading", name="letters", level=1)).to_be_visible()

        upload(service, data={"collection": "letters"}, headers={"x-api-key": key})
        expect(logged_in.locator("#head")).to_contain_text("1 document")
        logged_in.get_by_role("button", name="Delete", exact=True).click()
        expect(logged_in.locator("#confirm")).to_contain_text("with 1 document, their chunks and KV")
        logged_in.locator("#confirm").get_by_role("button", name="Delete").click()
        expect(logged_in.get_by_role("heading", name="Collections", level=1)).to_be_visible()
        expect(logged_in.locator("tbody tr")).to_have_count(1)

    def test_what_was_deleted_is_not_loaded_again(self, logged_in: Page, service: httpx.Client, key: str):
        """Its events may begin as late as this, and the next page be slow."""
        made = service.post("/v1/collections", json={"name": "papers"}, headers={"x-api-key": key}).json()
        events: list[Route] = []
        logged_in.route("**/events", lambda route: events.append(route))  # noqa: PLW0108 - it looks into functions
        with logged_in.expect_request("**/events"):
            logged_in.goto(f"/admin/collections/{made['id']}")
        logged_in.route("**/admin/collections", lambda route: (logged_in.wait_for_timeout(1000), route.continue_()))
        logged_in.get_by_role("button", name="Delete").click()
        logged_in.locator("#confirm").get_by_role("button", name="Delete").click()
        events[0].fulfill(body=": open\n\n", content_type="text/event-stream")

        expect(logged_in.get_by_role("heading", name="Collections", level=1)).to_be_visible()

    def test_a_name_that_is_taken_is_refused_where_it_was_typed(self, visit: Visit, logged_in: Page):
        logged_in.goto("/admin/collections")
        logged_in.get_by_role("button", name="New collection").click()
        logged_in.get_by_label("Name").fill("default")
        logged_in.get_by_role("button", name="Create collection").click()

        expect(logged_in.locator("#make .error")).to_have_text("a collection named 'default' already exists")
        expect(logged_in.get_by_label("Name")).to_have_value("default")
        visit.expect_fault("409")

    def test_a_reason_with_a_name_that_has_no_place_to_break_fits(
        self, visit: Visit, logged_in: Page, service: httpx.Client, key: str
    ):
        service.post("/v1/collections", json={"name": "y" * 200}, headers={"x-api-key": key})
        logged_in.goto("/admin/collections")
        logged_in.get_by_role("button", name="New collection").click()
        logged_in.get_by_label("Name").fill("y" * 200)
        logged_in.keyboard.press("Enter")
        expect(logged_in.locator("#make .error")).to_contain_text("already exists")
        assert logged_in.locator("#make").evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
        visit.expect_fault("409")

        logged_in.goto(f"/admin/collections/{'z' * 200}")
        assert logged_in.evaluate("document.documentElement.scrollWidth <= innerWidth")
        visit.expect_fault("404")

    def test_the_default_collection_stays(self, logged_in: Page):
        logged_in.goto("/admin/collections/default")

        expect(logged_in.get_by_role("button", name="Rename")).to_have_count(0)
        expect(logged_in.get_by_role("button", name="Delete")).to_have_count(0)

    def test_kv_has_a_rule_of_its_own(self, logged_in: Page, service: httpx.Client, key: str):
        rule = lambda: service.get("/v1/collections/default/kv/rule", headers={"x-api-key": key}).json()  # noqa: E731
        logged_in.goto("/admin/collections/default")
        logged_in.locator("#kv-rule summary").click()
        logged_in.get_by_label("Compute KV").select_option("nth_use")
        logged_in.get_by_label("Uses before").fill("3")
        logged_in.get_by_role("button", name="Save").click()

        expect(logged_in.locator("#kv-rule summary")).to_contain_text("once 3 answers have used a chunk")
        as_the_service = {"format": "bf16", "write": "through", "compress": "none", "keep": 0.5}
        assert rule() == {**as_the_service, "when": "nth_use", "uses": 3, "own": ["when", "uses"]}
        logged_in.locator("#kv-rule summary").click()
        logged_in.get_by_label("Compute KV").select_option("default")
        logged_in.get_by_role("button", name="Save").click()
        expect(logged_in.locator("#kv-rule summary")).to_contain_text("computed after the upload")
        logged_in.locator("#kv-rule summary").click()
        logged_in.get_by_label("Uses before").fill("")
        with logged_in.expect_event("load"):  # a window that is closed while it loads hangs, 1 time in 20
            logged_in.get_by_role("button", name="Save").click()
        assert rule()["own"] == []

    def test_answers_may_be_kept(self, logged_in: Page, service: httpx.Client, key: str):
        logged_in.goto("/admin/collections/default")
        logged_in.locator("#answer-cache summary").click()
        logged_in.get_by_label("Answer from the cache").check()
        logged_in.get_by_label("Minimum similarity").fill("0.9")
        logged_in.get_by_role("button", name="Save").click()

        expect(logged_in.locator("#answer-cache .badge")).to_have_text("on")
        kept = service.get("/v1/collections/default", headers={"x-api-key": key}).json()["answer_cache"]
        assert (kept["enabled"], kept["threshold"], kept["ttl_s"]) == (True, 0.9, 86400)

    def test_a_similarity_that_a_program_has_set_holds_up_no_change(
        self, logged_in: Page, service: httpx.Client, key: str
    ):
        """The API takes any from 0.5 to 1."""
        given = {"answer_cache": {"threshold": 0.9333}}
        assert service.patch("/v1/collections/default", json=given, headers={"x-api-key": key}).status_code == 200
        logged_in.goto("/admin/collections/default")
        logged_in.locator("#answer-cache summary").click()
        logged_in.get_by_label("Answer from the cache").check()
        logged_in.get_by_role("button", name="Save").click()

        expect(logged_in.locator("#answer-cache .badge")).to_have_text("on")
        kept = service.get("/v1/collections/default", headers={"x-api-key": key}).json()["answer_cache"]
        assert (kept["enabled"], kept["threshold"]) == (True, 0.9333)


class TestKeys:
    def test_a_key_is_shown_once_works_and_can_be_revoked(self, logged_in: Page, service: httpx.Client):
        logged_in.goto("/admin/keys")
        logged_in.get_by_label("Name").fill("indexing job")
        logged_in.get_by_label("write").check()
        logged_in.get_by_label("Days until it expires").fill("30")
        logged_in.get_by_role("button", name="Create key").click()
        made = new_key(logged_in)

        line = logged_in.locator("tbody tr").filter(has_text="indexing job")
        expect(line).to_contain_text("write")
        assert service.get("/v1/documents", headers={"x-api-key": made}).status_code == 200
        logged_in.reload()
        assert made not in logged_in.content()
        line.get_by_role("button", name="Revoke").click()
        logged_in.locator("#confirm").get_by_role("button", name="Revoke").click()
        expect(line).to_contain_text("revoked")
        assert service.get("/v1/documents", headers={"x-api-key": made}).status_code == 401

    def test_a_key_can_be_copied(self, logged_in: Page):
        logged_in.context.grant_permissions(["clipboard-read", "clipboard-write"])
        logged_in.goto("/admin/keys")
        logged_in.get_by_label("Name").fill("x")
        logged_in.get_by_role("button", name="Create key").click()
        logged_in.get_by_role("button", name="Copy").click()

        expect(logged_in.get_by_text("Copied.")).to_be_visible()
        copied = logged_in.evaluate("navigator.clipboard.readText()")
        assert copied == logged_in.locator("#new-key-value").inner_text()

    def test_revoking_ones_own_key_leads_to_the_login(self, visit: Visit, logged_in: Page):
        logged_in.goto("/admin/keys")
        logged_in.locator("tbody tr").filter(has_text="yours").get_by_role("button", name="Revoke").click()
        expect(logged_in.locator("#confirm")).to_contain_text("you will be logged out")
        logged_in.locator("#confirm").get_by_role("button", name="Revoke").click()

        logged_in.get_by_label("API key").wait_for()
        visit.faults.clear()

    def test_the_first_key_closes_the_service_and_opens_the_dashboard(self, visit: Visit, page: Page):
        page.goto("/admin/keys")
        page.get_by_label("Name").fill("first")
        page.get_by_role("button", name="Create key").click()
        made = new_key(page)
        expect(page.get_by_text("The service is open.")).to_be_hidden()
        expect(page.get_by_role("heading", name="No keys yet")).to_be_hidden()
        expect(
            page.get_by_role("button", name="Create key")
        ).to_be_hidden()  # one more would lead to the login, and lose it
        page.get_by_role("link", name="Log in with it").click()
        page.get_by_label("API key").fill(made)
        page.get_by_role("button", name="Log in").click()

        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        expect(page.get_by_text("The service is open.")).to_have_count(0)


def test_a_webhook_that_is_chosen_brings_its_deliveries_into_sight(page: Page, service: httpx.Client):
    for i in range(20):
        service.post("/v1/webhooks", json={"url": f"https://example.com/{i}"}).raise_for_status()
    page.goto("/admin/webhooks")
    page.get_by_role("link", name="https://example.com/3", exact=True).click()

    expect(page.get_by_role("heading", name="Deliveries to https://example.com/3")).to_be_in_viewport()


def test_settings_are_shown_with_their_names(logged_in: Page):
    logged_in.goto("/admin/settings")

    line = logged_in.locator("tr").filter(has_text="RAGKV_CHUNK_TOKENS")
    expect(line).to_contain_text("64")
    expect(line).to_contain_text("set")
    expect(logged_in.locator("tr").filter(has_text="RAGKV_TOP_K")).to_contain_text("default")
