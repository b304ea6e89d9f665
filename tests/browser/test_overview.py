"""The overview page in the browser: what to do first, figures that keep up, charts one can read in more ways than
one."""

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from tests.browser.visit import Visit
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import upload


@pytest.fixture
def document(service: httpx.Client, ingest: IngestParts, engine: EchoEngine) -> str:
    """A document that is ready, and an engine that stitches it."""
    engine.stitches = True
    document_id = str(upload(service).json()["id"])
    ingest_document(document_id, ingest)
    return document_id


def ask(service: httpx.Client, question: str = "Who wrote the first program?", mode: str = "stitched") -> None:
    assert service.post("/v1/ask", json={"question": question, "mode": mode}, timeout=60).status_code == 200


def test_before_the_first_question_it_says_what_to_do(page: Page, service: httpx.Client):
    page.goto("/admin")
    steps = page.locator(".steps li")
    expect(steps).to_have_count(3)
    expect(steps.first).not_to_have_class("done")

    upload(service)

    expect(steps.first).to_have_class("done")
    expect(steps.nth(1)).to_contain_text("1 document to go")
    steps.nth(2).get_by_role("link", name="Playground").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Playground")


def test_figures_keep_up_and_what_is_open_stays_open(page: Page, service: httpx.Client, document: str):
    ask(service)
    page.goto("/admin?window=1h")
    table = page.locator("#origin-table")
    table.locator("summary").click()
    expect(page.locator(".race .hint")).to_contain_text('ask once with mode "full"')

    ask(service, "Who built it?", mode="full")

    expect(page.locator(".race .figure")).to_have_text(re.compile(r"^\d+\.\d×$"))
    expect(page.locator(".race .hint")).to_contain_text("1 question that was computed in full")
    expect(page.locator("section", has=page.locator("#questions")).locator(".figure")).to_have_text("2")
    expect(page.locator("#live tbody th[scope=row] a")).to_have_text(["Who built it?", "Who wrote the first program?"])
    expect(table.get_by_role("table")).to_be_visible()


def test_a_page_that_is_no_longer_up_to_date_says_so(visit: Visit):
    page = visit.page
    page.clock.install()
    page.goto("/admin/jobs")
    page.route("**/admin/jobs", lambda route: route.abort())
    for pause_ms in (2000, 4000):
        with page.expect_event("requestfailed"):
            page.clock.run_for(pause_ms)
    expect(page.locator("#stale")).to_contain_text("the service does not respond")
    page.unroute("**/admin/jobs")
    with page.expect_response("**/admin/jobs"):
        page.clock.run_for(8000)
    expect(page.locator("#stale")).to_have_count(0)
    visit.expect_fault("ERR_FAILED")
    visit.expect_fault("ERR_FAILED")


def test_a_chart_says_in_words_what_it_draws(page: Page, service: httpx.Client, document: str):
    ask(service)
    page.goto("/admin?window=1h")

    chart = page.get_by_role("img", name="Prompt tokens by origin")
    expect(chart.locator("rect.of-stitched")).to_have_count(1)
    chart.locator(".column").hover()
    expect(page.locator(".tip")).to_contain_text(re.compile(r"Stitched: \d+"))
    page.locator("#origin-table summary").click()
    expect(page.locator("#origin-table tbody tr")).to_have_count(1)


def test_the_window_of_time_is_part_of_the_address(page: Page, service: httpx.Client, document: str):
    ask(service)
    page.goto("/admin")
    windows = page.get_by_role("navigation", name="Time window")
    expect(windows.get_by_role("link", name="24 hours")).to_have_attribute("aria-current", "true")
    windows.get_by_role("link", name="7 days").click()

    expect(windows.get_by_role("link", name="7 days")).to_have_attribute("aria-current", "true")
    assert page.url.endswith("?window=7d")


def test_a_question_that_was_asked_can_be_asked_again(page: Page, service: httpx.Client, document: str):
    """Whatever stands in it."""
    question = 'What is "a & b" <i>100%</i>?'
    ask(service, question)
    page.goto("/admin")
    page.get_by_role("link", name=question).click()

    expect(page.get_by_label("Question")).to_have_value(question)
