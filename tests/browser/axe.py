"""axe-core in the browser: what a page does against WCAG 2.2, levels A and AA."""

from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

SCRIPT = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
RUN = """() => axe.run({
  resultTypes: ["violations"],
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}).then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary, any }) => [
  id, html.slice(0, 160), any.map(({ message }) => message).join(" ") || failureSummary,
].join(" | "))))"""


def violations(page: Page) -> list[str]:
    """The rule, the element and the reason of each; those that are good practice, too."""
    page.evaluate(SCRIPT)
    found: list[str] = page.evaluate(RUN)
    return found
