"""A PDF's bookmarks as sections: each is looked for in the text of the page it points to."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.parse.clean import tidy
from ingest.parse.parsed import Page, Section


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of the outline. `level` 1 is the outermost, `page_index` counts from 0."""

    title: str
    level: int
    page_index: int


def sections_of_outline(text: str, pages: Sequence[Page], bookmarks: Sequence[Bookmark]) -> tuple[Section, ...]:
    """Sections for the bookmarks whose title stands on their page, in the outline's order; the rest are left out.

    Without the title's own place a section could begin anywhere on its page.
    """
    sections: list[Section] = []
    position = 0
    for bookmark in bookmarks:
        if bookmark.page_index >= len(pages):
            continue
        page = pages[bookmark.page_index]
        found = _pattern(bookmark.title).search(text, max(position, page.start), page.end)
        if found:
            sections.append(Section(found.start(), found.end(), bookmark.title, bookmark.level))
            position = found.end()
    return tuple(sections)


def _pattern(title: str) -> re.Pattern[str]:
    """The title on lines of its own, numbered or not, with any space between its words."""
    words = r"\s+".join(map(re.escape, tidy(title).split()))
    return re.compile(rf"(?:(?<=\n)|\A|(?<!.))(?:\d+(?:\.\d+)*\.?[ \t]+)?{words}[ \t]*(?=\n|\Z)")
