"""The playground in the browser: answers as they come, their sources, where the prompt's tokens came from."""

import re

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.parts import Parts
from tests.browser.visit import Visit
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import upload, wait_until

QUESTION = "Who wrote the first program?"
SAID = "Ada Lovelace wrote the first program."
CORRECTION = "Ada Lovelace, in 1843."
COVERED = (
    "bar => [...bar.querySelectorAll('rect')].reduce((sum, rect) => sum + parseFloat(rect.getAttribute('width')), 0)"
)


@pytest.fixture
def document(service: httpx.Client, ingest: IngestParts, engine: EchoEngine) -> str:
    """A document that is ready, and an engine that stitches it."""
    engine.stitches, engine.words = True, SAID.split(" ")
    document_id = str(upload(service).json()["id"])
    ingest_document(document_id, ingest)
    return document_id


@pytest.fixture
def playground(page: Page, document: str) -> Page:
    """The page with the question filled in."""
    page.goto("/admin/playground")
    page.get_by_label("Question").fill(QUESTION)
    return page


def answer(page: Page, name: str = "Stitched") -> Locator:
    return page.get_by_role("article", name=name, exact=True)


def state(page: Page, name: str = "Stitched") -> Locator:
    return answer(page, name).locator("header .badge")


def test_an_answer_comes_with_its_source_and_the_origin_of_its_prompt(playground: Page, document: str):
    playground.get_by_role("button", name="Ask").click()
    expect(state(playground)).to_have_text("done")

    expect(answer(playground).locator(".answer-text")).to_contain_text(SAID)
    expect(answer(playground).locator(".figure")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    cited = answer(playground).get_by_role("link", name="Source 1: Ada Lovelace")
    expect(cited).to_have_attribute("href", re.compile(rf"^/admin/documents/{document}\?at=\d+-\d+-[0-9a-f]{{8}}$"))
    bar = answer(playground).locator(".prompt-bar")
    assert bar.evaluate(COVERED) == pytest.approx(100, abs=0.1)
    assert bar.locator(".of-stitched").count() >= 2, "the instructions and the passage"
    expect(bar.locator(".of-computed")).to_have_count(1)
    answer(playground).locator(".passages summary").click()
    expect(answer(playground).locator(".passages li")).to_contain_text(
        re.compile("stitched from (memory|the disk), .*tokens")
    )
    with playground.context.expect_page() as opened:
        cited.click()
    expect(opened.value.locator("mark").first).to_contain_text("Ada Lovelace wrote the first program")


def test_a_question_stays_in_the_address_as_long_as_servers_take_it(visit: Visit, playground: Page):
    question = playground.get_by_role("textbox", name="Question")
    for text, ends, remembered in (("Wer war Ada?", "done", "Wer war Ada?"), ("图" * 9000, "failed", "")):
        question.fill(text)
        playground.get_by_role("button", name="Ask").click()
        expect(state(playground)).to_have_text(ends)
        playground.reload()

        expect(question).to_have_value(remembered)
    visit.expect_fault("413")  # it is longer than the model's window


def test_stitched_and_full_stand_side_by_side(playground: Page):
    playground.get_by_role("button", name="Compare with full prefill").click()

    expect(playground.locator("#verdict .figure")).to_have_text(re.compile(r"^\d+\.\d×$"))
    expect(playground.locator("#verdict")).to_contain_text("Both answers are the same, word for word.")
    expect(playground.locator("#verdict .race-row")).to_have_count(2)
    expect(answer(playground, "In full").locator(".prompt-bar .of-stitched")).to_have_count(0)
    left, right = (answer(playground, name).bounding_box() for name in ("Stitched", "In full"))
    assert left and right and left["x"] + left["width"] < right["x"] and left["y"] == right["y"]


def test_one_is_asked_after_the_other(playground: Page, engine: EchoEngine):
    """Two at once would slow each other down."""
    engine.piece_s = 0.2
    playground.get_by_role("button", name="Compare with full prefill").click()
    most = 0
    while playground.locator("#verdict").is_hidden():
        most = max(most, engine.running)

    assert most == 1


@pytest.mark.parametrize(("name", "requests"), [("Ask", 1), ("Compare with full prefill", 2)])
def test_a_button_that_asks_keeps_the_focus_and_asks_once(
    playground: Page, engine: EchoEngine, name: str, requests: int
):
    engine.piece_s = 0.5
    sent: list[str] = []
    playground.on("request", lambda request: sent.extend([request.url] * request.url.endswith("/v1/ask")))
    button = playground.get_by_role("button", name=name)
    button.focus()
    playground.keyboard.press("Enter")
    expect(button).to_be_disabled()
    expect(button).to_be_focused()
    playground.keyboard.press("Enter")

    expect(button).to_be_enabled()
    expect(button).to_be_focused()
    assert len(sent) == requests


def test_a_comparison_is_of_one_question_whatever_is_typed_meanwhile(playground: Page, engine: EchoEngine):
    engine.piece_s = 0.2
    sent: list[str] = []
    playground.on("request", lambda request: sent.extend([request.post_data or ""] * request.url.endswith("/v1/ask")))
    playground.get_by_role("button", name="Compare with full prefill").click()
    expect(answer(playground).locator(".answer-text")).to_contain_text("Ada")
    playground.get_by_label("Question").fill("Another question?")

    expect(playground.locator("#verdict")).to_be_visible()
    assert [QUESTION in body for body in sent] == [True, True]


def test_stopping_stops_the_engine(playground: Page, engine: EchoEngine):
    engine.piece_s = 0.5
    engine.words = SAID.split(" ") * 20
    playground.get_by_role("button", name="Ask").click()
    expect(answer(playground).locator(".answer-text")).to_contain_text("Ada")
    playground.get_by_role("button", name="Stop").click()

    expect(state(playground)).to_have_text("stopped")
    wait_until(lambda: engine.closed == 1 and engine.running == 0)
    expect(playground.get_by_role("button", name="Ask")).to_be_enabled()
    expect(playground.get_by_role("button", name="Stop")).to_be_hidden()


def test_the_keyboard_does_it_all(playground: Page, engine: EchoEngine):
    playground.keyboard.press("Control+Enter")
    expect(state(playground)).to_have_text("done")
    playground.keyboard.press("Control+Shift+Enter")
    expect(playground.locator("#verdict")).to_be_visible()
    engine.piece_s = 0.5
    playground.keyboard.press("Control+Enter")
    expect(answer(playground).locator(".answer-text")).to_contain_text("Ada")
    playground.keyboard.press("Escape")

    expect(state(playground)).to_have_text("stopped")


def test_what_goes_wrong_is_said_in_words(playground: Page, visit: Visit, engine: EchoEngine):
    engine.started = False
    playground.get_by_role("button", name="Ask").click()
    expect(answer(playground).get_by_role("alert")).to_contain_text("the engine has not started yet")
    visit.expect_fault("503")

    engine.started, engine.fail_after = True, 3
    playground.get_by_role("button", name="Ask").click()
    expect(answer(playground).get_by_role("alert")).to_contain_text("the engine failed")
    expect(answer(playground).locator(".answer-text")).to_have_text("Ada Lovelace wrote")

    playground.get_by_label("Question").fill("   ")
    playground.get_by_role("button", name="Ask").click()
    expect(playground.locator("#ask-error")).to_contain_text("The question is empty")


def test_an_empty_collection_says_what_to_do(visit: Visit):
    visit.page.goto("/admin/playground")
    expect(visit.page.locator("main")).to_contain_text("There is nothing to ask about yet")
    visit.page.get_by_label("Question").fill(QUESTION)
    visit.page.get_by_role("button", name="Ask").click()

    expect(visit.page.locator("main")).to_contain_text("upload one, or ask another")


def test_options_are_sent_and_what_is_left_out_is_not(playground: Page, parts: Parts):
    playground.get_by_label("Recompute", exact=True).select_option("head")
    playground.get_by_label("Share recomputed, %").fill("25")
    playground.get_by_text("More options").click()
    playground.get_by_label("Passages", exact=True).fill("3")
    with playground.expect_request("**/v1/ask") as sent:
        playground.get_by_role("button", name="Ask").click()

    assert sent.value.post_data_json == {
        "question": QUESTION,
        "collection": parts.default_collection.collection_id,
        "mode": "stitched",
        "stream": True,
        "policy": "head",
        "recompute_ratio": 0.25,
        "top_k": 3,
    }
    expect(state(playground)).to_have_text("done")


def test_the_share_shown_is_the_one_that_the_policy_recomputes(playground: Page):
    share = playground.get_by_label("Share recomputed, %")
    for policy, percent in ("none", "0"), ("head", "10"), ("", "10"):
        playground.get_by_label("Recompute", exact=True).select_option(policy)
        expect(share).to_have_attribute("placeholder", percent)


def test_a_session_asks_as_well(document: str, logged_in: Page):
    """Its token goes along."""
    logged_in.goto("/admin/playground")
    logged_in.get_by_label("Question").fill(QUESTION)
    logged_in.get_by_role("button", name="Ask").click()

    expect(state(logged_in)).to_have_text("done")


def test_on_a_phone_nothing_sticks_out(playground: Page, engine: EchoEngine):
    """And whatever an answer looks like, it is text."""
    engine.words = ["<img", "src=x", "onerror=alert(1)>", "x" * 300]
    playground.set_viewport_size({"width": 360, "height": 640})
    playground.get_by_role("button", name="Compare with full prefill").click()
    expect(playground.locator("#verdict")).to_be_visible()

    expect(answer(playground).locator(".answer-text")).to_contain_text("<img src=x onerror=alert(1)>")
    assert playground.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_answer_is_rated_and_corrected_by_keyboard_and_found_in_the_log(playground: Page, service: httpx.Client):
    page = playground
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("button", name="Bad answer").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Bad answer")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Corrected answer").focus()
    page.keyboard.type(CORRECTION)
    page.keyboard.press("Tab")
    page.keyboard.type("No year.")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("status").get_by_text("Feedback saved.")).to_be_visible()

    page.goto("/admin/questions")
    row = page.locator("#questions tbody tr")
    expect(row).to_contain_text(CORRECTION)
    page.get_by_label("Rating").select_option("up")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    page.get_by_label("Collection").select_option(label="default")
    page.get_by_role("button", name="Search").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Evaluation set").click()
    assert CORRECTION in download.value.path().read_text()
    page.get_by_role("button", name="Delete the feedback").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_contain_text("none")
    assert service.get("/v1/questions").json()["items"][0]["feedback"] is None


def test_a_thumb_pressed_again_takes_the_rating_back(playground: Page, service: httpx.Client):
    playground.get_by_role("button", name="Ask").click()
    thumb = playground.get_by_role("button", name="Good answer")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "true")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "false")
    assert service.get("/v1/questions").json()["items"][0]["feedback"] is None
