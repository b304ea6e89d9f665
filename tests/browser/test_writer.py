"""The writer's page: an evaluation is asked for, and the page follows it."""

from playwright.sync_api import expect

from ingest.progress import ignore
from ingest.writer.job import evaluate_asked
from ragkv.parts import Parts
from tests.browser.visit import Visit


def test_an_evaluation_is_followed_to_its_end(visit: Visit, parts: Parts):
    visit.page.goto("/admin/writer")
    visit.page.get_by_role("button", name="Evaluate embedded").click()
    expect(visit.page.locator("#evaluation-embedded")).to_contain_text("waiting for a worker")

    evaluate_asked("embedded", parts, ignore)

    expect(visit.page.locator("#evaluation-embedded")).to_contain_text("give more documents")
    expect(visit.page.get_by_role("button", name="Evaluate embedded")).to_be_visible()
    expect(visit.page.locator("#writers")).not_to_have_attribute("data-poll", "2s")
