"""Evaluations in the browser: answers are rated, a run is started and followed, and its figures are read."""

import json
import re

import httpx
import pytest
from playwright.sync_api import expect

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from tests.browser.visit import Visit
from tests.over_http import upload

QUESTION = "Who wrote the first program?"


@pytest.fixture(autouse=True)
def answerable(service: httpx.Client, ingest: IngestParts) -> None:
    ingest_document(upload(service).json()["id"], ingest)


def test_rated_answers_become_a_figure(visit: Visit):
    page = visit.page
    page.goto("/admin/playground")
    page.get_by_role("textbox", name="Question").fill(QUESTION)
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("button", name="Bad answer").click()
    page.get_by_label("Corrected answer").fill("Ada Lovelace")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Feedback saved.").wait_for()

    page.get_by_role("link", name="Evaluations").click()
    expect(page.get_by_role("heading", name="No evaluations yet")).to_be_visible()
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#evaluation .badge").first).to_have_text("done")
    expect(page.locator("#measured-0")).to_contain_text(QUESTION)
    expect(page.locator("#measured-0 .compared")).to_contain_text("Ada Lovelace wrote it.")
    page.get_by_role("link", name="Evaluations").first.click()
    expect(page.locator("#gain-kept")).to_have_text(re.compile(r"[\d.]+|–"))
    expect(page.get_by_role("row").filter(has_text="Fidelity of default")).to_contain_text("1 from rated questions")


def test_an_uploaded_set_is_read_here_and_a_line_that_is_none_is_named(visit: Visit):
    page = visit.page
    page.goto("/admin/evaluations")
    page.get_by_label("Measure").select_option("retrieval")
    page.get_by_label("Questions").select_option("given")
    chosen = page.get_by_label("JSON lines")
    line = json.dumps({"question": QUESTION, "gold": ["the first program"]})
    for body in (f"{line}\nno JSON", line):
        chosen.set_input_files({"name": "set.jsonl", "mimeType": "application/jsonl", "buffer": body.encode()})
        page.get_by_role("button", name="Start").click()
        if body != line:
            expect(page.locator("#start .error")).to_contain_text("set.jsonl, line 2")
    expect(page.locator("#evaluation .badge").first).to_have_text("done")
    expect(page.locator("#evaluation")).to_contain_text("1 measured, 0 skipped")
