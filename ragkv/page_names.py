"""Names of a document's pages: slides of presentations, sheets of workbooks, pages of everything else."""

from typing import Literal

PageName = Literal["page", "slide", "sheet"]

PAGE_NAMES: dict[str, PageName] = {
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "slide",
    "application/vnd.oasis.opendocument.presentation": "slide",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "sheet",
    "application/vnd.oasis.opendocument.spreadsheet": "sheet",
}
"""By media type."""


def page_name(media_type: str) -> PageName:
    """The name of a page of this media type."""
    return PAGE_NAMES.get(media_type, "page")


def page_label(media_type: str, number: int | None) -> str | None:
    """A page as a reader calls it, such as "slide 3". None where the format has no pages."""
    return None if number is None else f"{page_name(media_type)} {number}"
