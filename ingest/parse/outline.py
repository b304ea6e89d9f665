"""Sections from a PDF's bookmarks: each title is located in the text of the page that it points to."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from ingest.parse.parsed import MAX_TITLE_CHARS, Page, Section
from ragkv.text import tidy

_LINE = re.compile(r"[^\n]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)*\.?[ \t]+")
_MAX_NUMBER_CHARS = 40
_MAX_TITLE_LINES = 4


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of the outline. `level` 1 is the outermost, `page_index` counts from 0."""

    title: str
    level: int
    page_index: int


def sections_of_outline(text: str, pages: Sequence[Page], bookmarks: Sequence[Bookmark]) -> tuple[Section, ...]:
    """Sections for the bookmarks whose title stands on their page, in the outline's order; the rest are left out.

    A title fills whole lines, numbered or not. Without its own place a section could begin anywhere on its page.
    """
    titles: dict[int, set[str]] = defaultdict(set)
    for bookmark in bookmarks:
        titles[bookmark.page_index].add(_words(tidy(bookmark.title)))
    places = {index: _places(text, page, titles[index]) for index, page in enumerate(pages) if index in titles}
    sections: list[Section] = []
    position = 0
    for bookmark in bookmarks:
        matches = places.get(bookmark.page_index, {}).get(_words(tidy(bookmark.title)), [])
        following = bisect_left(matches, (position, 0))
        if following < len(matches):
            start, position = matches[following]
            sections.append(Section(start, position, bookmark.title, bookmark.level))
    return tuple(sections)


def _places(text: str, page: Page, titles: set[str]) -> dict[str, list[tuple[int, int]]]:
    """The characters [start, end) of each place where one of the titles stands, ascending. Looks at each line once."""
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    lines = list(_LINE.finditer(text, page.start, page.end))
    for number, line in enumerate(lines):
        if line[0][0].isspace():
            continue
        skipped = _NUMBER.match(line[0], 0, _MAX_NUMBER_CHARS)
        for words, end in _joined(lines[number : number + _MAX_TITLE_LINES]):
            for candidate in {words, words[len(_words(skipped[0])) :].lstrip()} if skipped else {words}:
                if candidate in titles:
                    places[candidate].append((line.start(), end))
    return places


def _joined(lines: Sequence[re.Match[str]]) -> Iterator[tuple[str, int]]:
    """The words of the first line, of the first two, and so on, up to a title's length, and where they end."""
    words = (_words(line[0]) for line in takewhile(lambda line: len(line[0]) <= 2 * MAX_TITLE_CHARS, lines))
    for joined, line in zip(accumulate(words, lambda text, more: f"{text} {more}"), lines, strict=False):
        if len(joined) > MAX_TITLE_CHARS + _MAX_NUMBER_CHARS:
            return
        yield joined, line.end()


def _words(text: str) -> str:
    return " ".join(text.split())
