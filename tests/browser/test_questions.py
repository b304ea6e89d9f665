"""The log of questions in the browser."""

from playwright.sync_api import Locator, expect

from tests.browser.visit import Visit


def background(button: Locator) -> object:
    return button.evaluate("button => getComputedStyle(button).backgroundColor")


def test_a_shorter_retention_is_confirmed_and_looks_chosen(visit: Visit):
    """What is older than it is deleted."""
    page = visit.page
    page.goto("/admin/questions")
    choices = page.get_by_role("group", name="Retention")
    week, month = (choices.get_by_role("button", name=f"{days} days", exact=True) for days in (7, 30))
    week.click()
    expect(page.locator("#confirm-text")).to_contain_text("older than 7 days")
    page.get_by_role("button", name="Delete").click()
    expect(week).to_have_attribute("aria-pressed", "true")
    page.mouse.move(0, 0)
    assert background(week) != background(month)
    month.click()
    expect(month).to_have_attribute("aria-pressed", "true")
