"""Open WebUI's own page in Chromium, connected to `ragkv serve`: answers with sources, a second turn, a title."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.clients.programs import ROOT, STORE
from tests.e2e.service import Service
from tests.support.over_http import free_port, wait_until

PROGRAM = ROOT / ".venv-open-webui" / "bin" / "open-webui"
CHROMIUM = shutil.which("chromium")
WAIT_MS = 300_000
SETTINGS = {
    "WEBUI_AUTH": "False",
    "ENABLE_OLLAMA_API": "False",
    "OFFLINE_MODE": "True",
    "RAG_EMBEDDING_MODEL": "",
    "WEBUI_SECRET_KEY": "for tests",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "True",
    "SCARF_NO_ANALYTICS": "True",
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (PROGRAM.exists() and CHROMIUM), reason="needs `make test-clients OPEN_WEBUI=1` and Chromium"
    ),
]


@pytest.fixture
def address(service: Service, key: str, tmp_path: Path) -> Iterator[str]:
    """A new Open WebUI with one connection."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    connection = {"OPENAI_API_BASE_URL": f"{service.client.base_url}/v1", "OPENAI_API_KEY": key}
    environ = os.environ | SETTINGS | connection | {"DATA_DIR": str(tmp_path)}
    command = [str(PROGRAM), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd=tmp_path)
        try:
            wait_until(lambda: is_up(url), 300)
            yield url
        finally:
            process.terminate()
            process.wait(60)


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/config", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def page(address: str) -> Iterator[Page]:
    """A new chat with the model and its collection."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{address}/?models=SmolLM2-135M-Instruct@{STORE}")
        page.locator("#chat-input").wait_for()
        if (news := page.get_by_text("Okay, Let's Go!")).is_visible():
            news.click()
        yield page
        browser.close()


def ask(page: Page, question: str) -> None:
    page.locator("#chat-input").press_sequentially(question)
    page.keyboard.press("Enter")


def test_a_chat_shows_its_sources_and_gets_a_title(page: Page):
    sources = page.locator("button[aria-label^='Toggle'][aria-label*='source']")
    ask(page, "Who composed the music of Billy Elliot?")
    expect(sources).to_have_count(1, timeout=WAIT_MS)
    ask(page, "When was it released?")
    expect(page.locator(".chat-assistant")).to_have_count(2, timeout=WAIT_MS)

    sources.first.click()
    assert page.locator("[id^='source-']").first.inner_text().split()[-1].endswith((".md", ".html"))
    expect(page).not_to_have_title("Open WebUI", timeout=WAIT_MS)
    expect(page).not_to_have_title("New Chat / Open WebUI", timeout=WAIT_MS)
