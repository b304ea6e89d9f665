"""Evaluations of uploaded sets in the browser. That of rated questions is part of the first day (test_first_day.py)."""

import json
from datetime import datetime, timedelta

import httpx
import pytest
from playwright.sync_api import Route, expect

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.ids import utc_now
from tests.browser.visit import Visit
from tests.support.over_http import upload

QUESTION = "Who wrote the first program?"


@pytest.fixture(autouse=True)
def answerable(service: httpx.Client, ingest: IngestParts) -> None:
    ingest_document(upload(service).json()["id"], ingest)


def test_an_uploaded_set_is_read_here_and_what_is_wrong_in_it_is_named(visit: Visit):
    page = visit.page
    page.goto("/admin/evaluations")
    page.get_by_label("Measure").select_option("retrieval")
    page.get_by_label("Questions").select_option("given")
    chosen = page.get_by_label("JSON lines")
    line = json.dumps({"question": QUESTION, "gold": ["the first program"]})
    refused = {f"{line}\nno JSON": "set.jsonl, line 2", line.replace("gold", "passages"): "questions[0].passages[0]"}
    for body in (*refused, line):
        chosen.set_input_files({"name": "set.jsonl", "mimeType": "application/jsonl", "buffer": body.encode()})
        page.get_by_role("button", name="Start").click()
        if body in refused:
            expect(page.locator("#start .error")).to_contain_text(refused[body])
    visit.expect_fault("400")
    expect(page.locator("#evaluation .badge").first).to_have_text("done")
    expect(page.locator("#evaluation")).to_contain_text("1 measured, 0 skipped")


def test_the_button_that_starts_keeps_the_focus_and_starts_once(visit: Visit):
    page = visit.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/evaluations", hold)
    page.goto("/admin/evaluations")
    page.get_by_label("Measure").select_option("retrieval")
    page.get_by_label("Questions").select_option("given")
    chosen, start = page.get_by_label("JSON lines"), page.get_by_role("button", name="Start")
    chosen.set_input_files({"name": "set.jsonl", "mimeType": "application/jsonl", "buffer": b"no JSON"})
    start.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#start .error")).to_contain_text("set.jsonl, line 1")
    expect(start).to_be_focused()
    line = json.dumps({"question": QUESTION, "gold": ["the first program"]})
    chosen.set_input_files({"name": "set.jsonl", "mimeType": "application/jsonl", "buffer": line.encode()})
    start.focus()
    with page.expect_request("**/v1/evaluations"):
        page.keyboard.press("Enter")
    expect(start).to_be_disabled()
    expect(start).to_be_focused()
    page.keyboard.press("Enter")

    held[0].continue_()
    expect(page.locator("#evaluation .badge").first).to_have_text("done")
    assert len(held) == 1


def test_a_period_ends_when_the_evaluation_is_started(visit: Visit):
    page = visit.page
    page.route("**/v1/evaluations", lambda route: route.fulfill(json={"id": "../evaluations"}))
    page.goto("/admin/evaluations")
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 48 * 3600e3; }")
    page.get_by_label("Questions").select_option("logged")
    page.get_by_label("Asked").select_option("Last day")
    with page.expect_request("**/v1/evaluations") as started:
        page.get_by_role("button", name="Start").click()
    since = datetime.fromisoformat(started.value.post_data_json["since"])
    assert timedelta(hours=23) < since - utc_now() < timedelta(hours=25)
