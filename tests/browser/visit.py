"""A window of the browser that remembers what went wrong in it."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect

TIMEOUT_MS = 60_000
"""Generous: the machine may be busy."""

FILES = """files => {
  const transfer = new DataTransfer();
  for (const [name, body] of files) {
    const bytes = Uint8Array.from(atob(body), (character) => character.charCodeAt(0));
    transfer.items.add(new File([bytes], name));
  }
  return transfer;
}"""


class Visit:
    """`faults` are errors and warnings of the console, among them what the content security policy blocked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    @classmethod
    @contextmanager
    def beginning(cls, browser: Browser, url: str, **options: Any) -> Iterator["Visit"]:
        """At the end nothing may have gone wrong but what the test took note of with `expect_fault`."""
        expect.set_options(timeout=TIMEOUT_MS)
        context = browser.new_context(base_url=url, **options)
        visit = cls(context.new_page())
        yield visit
        faults = list(visit.faults)
        context.close()
        assert faults == [], faults

    def log_in(self, key: str) -> None:
        self.page.goto("/admin/login")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("button", name="Log out").wait_for()

    def drop(self, *files: tuple[str, bytes]) -> None:
        """Files dragged onto the page's drop zone, once its script runs."""
        self.page.wait_for_load_state()
        encoded = [(name, base64.b64encode(body).decode()) for name, body in files]
        transfer = self.page.evaluate_handle(FILES, encoded)
        for event in ("dragenter", "dragover", "drop"):
            self.page.dispatch_event("#drop", event, {"dataTransfer": transfer})

    def expect_fault(self, text: str) -> None:
        """One fault with this text came, and is forgiven."""
        found = next((fault for fault in self.faults if text in fault), None)
        assert found is not None, (text, self.faults)
        self.faults.remove(found)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"{message.text} ({message.location.get('url', '')})")
