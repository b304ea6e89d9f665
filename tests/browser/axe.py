"""axe-core in the browser: what a page does against WCAG 2.2, levels A and AA."""

from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

SCRIPT = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES_OF_COLOUR = ["color-contrast", "link-in-text-block"]
"""Those that look at colours: all that can differ where the same page at the same width is dark."""
RUN = """runOnly => axe.run({
  resultTypes: ["violations"], runOnly,
}).then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary, any }) => [
  id, html.slice(0, 160), any.map(({ message }) => message).join(" ") || failureSummary,
].join(" | "))))"""


def violations(page: Page, rules: list[str] = RULES) -> list[str]:
    """The rule, the element and the reason of each; those that are good practice, too."""
    page.evaluate(SCRIPT)
    found: list[str] = page.evaluate(RUN, rules)
    return found
