"""What an admin does on the first day, in the browser, with `ragkv serve` and its real engine. Also takes the
pictures."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from sqlalchemy import update

from api.admin.shell import NAVIGATION
from ragkv.service.base.database import Database
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from tests.browser.visit import Visit
from tests.e2e.service import SAMPLE, Service, environment, started

PDF = "aviation-and-space.pdf"
QUESTION = "Who composed the music of Billy Elliot?"
QUESTIONS = SAMPLE.with_name("questions.jsonl")
READY_MS = 300_000

GROWTH = """() => {
  window.seen = [];
  const note = () => {
    const text = document.querySelector("#answers .answer-text")?.textContent;
    if (text && seen.at(-1) !== text) seen.push(text);
  };
  new MutationObserver(note).observe(document.getElementById("answers"), { childList: true, subtree: true, characterData: true });
}"""

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 860}},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "is_mobile": True},
}
TALLEST = 1500
ASKED = 8
"""Questions before the pictures are taken. Each picture of the playground has another one, which the engine's own cache
does not know."""

RENAME = """names => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) for (const [name, shown] of names) walker.currentNode.data = walker.currentNode.data.replace(name, shown);
}"""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flow") / "data"


@pytest.fixture(scope="module")
def service(data_dir: Path, language_model: Path, free_port: Callable[[], int]) -> Iterator[Service]:
    with started(environment(data_dir, language_model), free_port(), data_dir.with_name("serve.log")) as service:
        service.wait_ready()
        yield service


@pytest.fixture(scope="module")
def key(service: Service) -> str:
    """The first key. The client that made it goes on with it."""
    made = service.client.post("/v1/keys", json={"name": "admin", "scopes": ["admin"]}).json()["key"]
    service.client.headers["authorization"] = f"Bearer {made}"
    return str(made)


def row(page: Page, name: str) -> Locator:
    return page.locator("tr[data-document]").filter(has_text=name)


def words(shown: Locator) -> str:
    """Its text, however its lines are broken."""
    return " ".join(shown.inner_text().split())


def becomes(page: Page, name: str, status: str) -> None:
    expect(row(page, name).locator(".badge")).to_have_text(status, timeout=READY_MS)


def test_the_first_day(chromium: Browser, service: Service, key: str, data_dir: Path):
    with Visit.beginning(chromium, str(service.client.base_url)) as visit:
        page = visit.page
        logs_in(visit, key)
        uploads_by_drag_and_drop(visit)
        asks_and_opens_a_citation(page)
        compares_with_full_prefill(page)
        retries_what_failed(visit, service, data_dir)
        deletes(page, service)


def logs_in(visit: Visit, key: str) -> None:
    visit.page.goto("/admin/collections/default")
    visit.page.get_by_label("API key").fill(key)
    visit.page.get_by_role("button", name="Log in").click()
    expect(visit.page.get_by_role("heading", name="default", level=1)).to_be_visible()


def uploads_by_drag_and_drop(visit: Visit) -> None:
    """And watches: the stages come by, in tokens, until both are ready."""
    visit.drop((PDF, (SAMPLE / PDF).read_bytes()), ("films.md", (SAMPLE / "films.md").read_bytes()))
    upload = visit.page.locator(".upload").filter(has_text=PDF)
    expect(upload).to_contain_text(re.compile(r"prefill: [\d,]+ of [\d,]+ tokens"), timeout=READY_MS)
    for name in (PDF, "films.md"):
        becomes(visit.page, name, "ready")
    expect(upload).to_contain_text("ready")


def asks_and_opens_a_citation(page: Page) -> None:
    page.get_by_role("link", name="Playground").click()
    page.get_by_role("textbox", name="Question").fill(QUESTION)
    page.evaluate(GROWTH)
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answers .badge").first).to_have_text("done", timeout=READY_MS)
    assert page.evaluate("seen.length") > 2, "the answer came piece by piece"
    quote = words(page.locator(".sources blockquote").first)
    with page.context.expect_page() as opened:
        page.locator(".answer-text .cite").first.click()
    assert words(opened.value.locator("mark").first) in quote
    expect(opened.value.locator("mark").first).to_be_in_viewport()
    opened.value.close()


def compares_with_full_prefill(page: Page, question: str = "Who directed the film Madame la Presidente?") -> None:
    page.get_by_role("textbox", name="Question").fill(question)
    page.get_by_role("button", name="Compare with full prefill").click()
    expect(page.locator("#verdict")).to_contain_text(re.compile(r"\d\.\d×"), timeout=READY_MS)
    for name in ("Stitched", "In full"):
        answer = page.get_by_role("article", name=name, exact=True)
        expect(answer.locator(".badge").first).to_have_text("done")
        expect(answer.locator(".figure")).to_have_text(re.compile(r"[\d.]+ m?s"))


def retries_what_failed(visit: Visit, service: Service, data_dir: Path) -> None:
    """One whose worker died, which the second try reads; one that can never be read fails again, with the reason."""
    page = visit.page
    page.goto("/admin/collections/default")
    visit.drop(("scan.gif", b"GIF89a is no text"), ("places.txt", (SAMPLE / "places.txt").read_bytes()))
    becomes(page, "scan.gif", "failed")
    expect(row(page, "scan.gif").locator(".error")).to_contain_text("it is an image")
    becomes(page, "places.txt", "ready")
    break_off(data_dir, "places.txt")
    page.reload()
    expect(row(page, "places.txt").locator(".error")).to_contain_text("the worker died")
    row(page, "places.txt").get_by_role("button", name="Retry").click()
    expect(row(page, "places.txt").locator(".error")).to_have_count(0)
    becomes(page, "places.txt", "ready")
    with page.expect_response("**/retry"):
        row(page, "scan.gif").get_by_role("button", name="Retry").click()
    page.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("row").filter(has_text="scan.gif").filter(has_text="it is an image")).to_have_count(2)
    page.goto("/admin/collections/default")


def deletes(page: Page, service: Service) -> None:
    row(page, PDF).get_by_role("button", name="Delete").click()
    page.locator("#confirm").get_by_role("button", name="Delete").click()
    expect(row(page, PDF)).to_have_count(0)
    assert PDF not in {document["name"] for document in service.client.get("/v1/documents").json()["items"]}


def break_off(data_dir: Path, name: str) -> None:
    """What is left of a document whose worker died too often."""
    database = Database(f"sqlite:///{data_dir / 'ragkv.sqlite3'}")
    failed = {"status": Status.FAILED, "error": "the worker died 3 times while reading this document"}
    with database.writing() as session:
        session.execute(update(DocumentRow).where(DocumentRow.name == name).values(**failed))
    database.close()


class TestPictures:
    """With --screenshots DIR."""

    @pytest.fixture(scope="class")
    def folder(self, request: pytest.FixtureRequest) -> Path:
        given = request.config.getoption("--screenshots")
        if given is None:
            pytest.skip("pictures are taken with --screenshots DIR")
        folder = Path(given)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @pytest.fixture(scope="class")
    def busy(self, folder: Path, service: Service, key: str) -> dict[str, Any]:
        """A service that has read the sample documents and answered questions; one of its documents."""
        documents = [service.read(path.name, path.read_bytes()) for path in sorted(SAMPLE.iterdir())]
        service.read("scan.gif", b"GIF89a is no text")
        for name in ("field notes", "papers 2024"):
            service.client.post("/v1/collections", json={"name": name})
        for question in questions()[:ASKED]:
            for mode in ("stitched", "full"):
                service.ask(question, mode=mode)
        return next(document for document in documents if document["name"] == "films.md")

    @pytest.mark.parametrize("look", LOOKS)
    def test_of_every_page(
        self, chromium: Browser, service: Service, key: str, busy: dict[str, Any], data_dir: Path, language_model: Path,
        folder: Path, look: str,
    ):  # fmt: skip
        own = [(str(data_dir), ".ragkv"), (str(language_model), "embedded")]
        with Visit.beginning(chromium, str(service.client.base_url), **LOOKS[look]) as visit:
            visit.page.goto("/admin/login")
            take(visit.page, folder / f"login-{look}.png")
            visit.log_in(key)
            for name, path in pages(busy["id"], citation_of(service.client, busy["id"])):
                visit.page.goto(path)
                if name == "playground":
                    compares_with_full_prefill(visit.page, questions()[ASKED + list(LOOKS).index(look)])
                visit.page.evaluate(RENAME, own)
                take(visit.page, folder / f"{name}-{look}.png")


def questions() -> list[str]:
    return [json.loads(line)["question"] for line in QUESTIONS.read_text().splitlines()]


def pages(document_id: str, place: str) -> list[tuple[str, str]]:
    shown = [(path.rpartition("/")[2], path) for _, path, _ in NAVIGATION]
    shown[0] = ("overview", "/admin?window=1h")
    more = [("collection", "/admin/collections/default"), ("document", f"/admin/documents/{document_id}?at={place}")]
    return shown + more


def citation_of(client: httpx.Client, document_id: str) -> str:
    """A place in the document that an answer cites."""
    answer = client.post("/v1/ask", json={"question": QUESTION, "document_ids": [document_id]}).json()
    source = (answer["citations"] or answer["passages"])[0]
    return f"{source['start']}-{source['end']}"


def take(page: Page, path: Path) -> None:
    """The whole page up to TALLEST pixels, once it stands still."""
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({**size, "height": min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)})
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(800)
    page.screenshot(path=path, animations="disabled")
    page.set_viewport_size(size)
