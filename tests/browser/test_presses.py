"""A press is never lost: not while the page still loads, not while the part around it is refreshed."""

import httpx
from playwright.sync_api import Page, Route, expect

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from tests.browser.visit import Visit
from tests.support.over_http import upload

REFRESH = """(ids) => { import("/admin/static/swap.js").then((swap) => swap.refresh(ids)); }"""


def held_back(page: Page, script: str) -> list[Route]:
    """The page's requests for the script, which wait until they are let go."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(f"**/static/{script}", hold)
    return held


def test_a_button_that_is_pressed_while_the_page_loads_acts_when_it_has(logged_in: Page):
    held = held_back(logged_in, "main.js")
    logged_in.goto("/admin/collections", wait_until="commit")
    logged_in.get_by_role("button", name="Log out").click()
    logged_in.get_by_role("button", name="New collection").click()
    assert len(held) == 1
    assert logged_in.url.endswith("/admin/collections")

    held[0].continue_()

    logged_in.get_by_label("API key").wait_for()


def test_a_question_that_is_asked_while_the_page_loads_is_answered_when_it_has(
    page: Page, service: httpx.Client, ingest: IngestParts
):
    ingest_document(upload(service).json()["id"], ingest)
    held = held_back(page, "playground.js")
    page.goto("/admin/playground", wait_until="commit")
    page.get_by_role("textbox", name="Question").fill("Who?")
    page.get_by_role("button", name="Ask").click()
    page.evaluate("window.sameVisit = true")

    held[0].continue_()

    expect(page.locator("#answers .badge").first).to_have_text("done")
    assert page.evaluate("window.sameVisit"), "the script asked, the form did not lead to another page"


def test_a_button_that_is_held_down_is_not_replaced(page: Page, service: httpx.Client, ingest: IngestParts):
    ingest_document(upload(service, b"GIF89a", "scan.gif").json()["id"], ingest)
    page.goto("/admin/jobs")
    page.get_by_role("button", name="Retry").hover()
    page.mouse.down()
    upload(service)
    with page.expect_response("**/admin/jobs"):
        page.evaluate(REFRESH, "jobs")
    page.wait_for_timeout(200)

    with page.expect_response("**/retry") as retried:
        page.mouse.up()

    assert retried.value.status == 202
    expect(page.get_by_role("link", name="ada.md")).to_be_visible()


def test_a_button_acts_on_its_own_row_whatever_comes_above_it(page: Page, service: httpx.Client):
    upload(service, b"One.", "one.txt")
    page.goto("/admin/collections/default")
    page.get_by_role("button", name="Delete one.txt").hover()
    page.mouse.down()
    upload(service, b"Two.", "two.txt")
    page.evaluate(REFRESH, "documents")
    row = page.locator("tr[data-document]")
    expect(row).to_have_count(2)
    expect(row.first).to_contain_text("two.txt")
    page.get_by_role("button", name="Delete one.txt").hover()

    page.mouse.up()

    expect(page.locator("#confirm")).to_contain_text("Delete “one.txt”")


def test_the_focus_goes_to_the_part_where_the_focused_link_is_gone(page: Page, service: httpx.Client):
    document_id = upload(service, b"One.", "one.txt").json()["id"]
    page.goto("/admin/collections/default")
    page.get_by_role("link", name="one.txt").focus()
    service.delete(f"/v1/documents/{document_id}")
    page.evaluate(REFRESH, "documents")

    expect(page.get_by_role("heading", name="No documents yet")).to_be_visible()
    expect(page.locator("#documents")).to_be_focused()


def test_what_is_gone_already_leaves_the_list(visit: Visit, service: httpx.Client):
    document_id = upload(service, b"One.", "one.txt").json()["id"]
    with visit.page.expect_response(lambda response: response.request.resource_type == "fetch"):  # the last by itself
        visit.page.goto("/admin/collections/default")
    service.delete(f"/v1/documents/{document_id}")
    visit.page.get_by_role("button", name="Delete one.txt").click()
    visit.page.locator("#confirm-yes").click()

    expect(visit.page.get_by_role("status").get_by_text("there is no document")).to_be_visible()
    expect(visit.page.get_by_role("heading", name="No documents yet")).to_be_visible()
    visit.expect_fault("404")


def test_what_an_older_load_brings_does_not_replace_a_newer_ones(page: Page, service: httpx.Client):
    old = upload(service, b"One.", "old.txt").json()["id"]
    upload(service, b"Two.", "new.txt")
    page.goto("/admin/collections/default")
    held: list[tuple[Route, str]] = []
    page.route("**/admin/collections/default", lambda route: held.append((route, route.fetch().text())), times=1)
    with page.expect_request("**/admin/collections/default"):
        page.evaluate(REFRESH, "documents")
    page.wait_for_timeout(500)
    service.delete(f"/v1/documents/{old}")
    page.evaluate(REFRESH, "documents")
    expect(page.get_by_role("link", name="old.txt")).to_have_count(0)

    (route, body), *_ = held
    assert "old.txt" in body
    route.fulfill(body=body, content_type="text/html")
    page.wait_for_timeout(500)

    expect(page.get_by_role("link", name="new.txt")).to_be_visible()
    expect(page.get_by_role("link", name="old.txt")).to_have_count(0)


def test_a_button_that_acted_keeps_the_focus(page: Page, service: httpx.Client):
    page.goto("/admin/kv")
    button = page.get_by_role("button", name="Pin")
    button.focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("button", name="Unpin")).to_be_focused()
