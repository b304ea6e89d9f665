"""Compose a parsed document from blocks of text, headings, tables, pages, and page headers and footers."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ingest.parse.parsed import MAX_PAGES, MAX_TEXT_CHARS, Page, Parsed, Section, one_line
from ingest.parse.rows import lines_of_table
from ingest.parse.sniff import Format
from ingest.parse.spans import join_headers
from ragkv.errors import TooLarge
from ragkv.text import scrub, tidy

_GAP = "\n\n"
_LINES_AT_ONCE = 1_000
_MAX_MARGINS = 100
FIELD = "\ufffc"
"""Stands for a field in the text of a header: a page number, a date, the name of the file."""
PAGE_NUMBER = re.compile(r"\b(NUM)?PAGES?\b")
"""The instruction of a field of Word or RTF that shows the number of a page, or of all pages."""
_MAX_WORDS_BESIDE = 2


class Composer:
    """A text that grows at its end, with the places of its headings and pages.

    Every piece is scrubbed, tidied and set apart by a blank line; one without words adds nothing. Raises TooLarge for
    more characters or pages than a document may have.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._sections: list[Section] = []
        self._pages: list[Page] = []

    def block(self, text: str) -> None:
        self._append(tidy(scrub(text)))

    def heading(self, title: str, level: int) -> None:
        """A section that lasts until the next heading. `level` 1 is the outermost."""
        if words := " ".join(tidy(scrub(title)).split()):
            start = self._append(words)
            self._sections.append(Section(start, self._length, one_line(words), level))

    def table(self, rows: Iterable[Sequence[str]]) -> None:
        """A line for each row, with the labels of the header above it. Rows with cells that span others come from
        `spans.Columns`."""
        self.lines(lines_of_table(join_headers(rows)))

    def lines(self, lines: Iterator[str]) -> None:
        """The lines of a table, however many."""
        while batch := list(islice(lines, _LINES_AT_ONCE)):
            self.block("\n".join(batch))

    def margins(self, lines: Iterable[str]) -> None:
        """Lines of page headers and footers, each once, apart from the text; those that stand in the text already are
        left out."""
        once = islice(dict.fromkeys(" ".join(scrub(line).split()) for line in lines), _MAX_MARGINS)
        if new := list(once):
            text = "".join(self._pieces)
            self.block("\n".join(line for line in new if line not in text))

    def document(self, parsed: Parsed) -> None:
        """The text of another document, with its headings. Its pages are left out."""
        start = self._append(parsed.text)
        self._sections += (Section(start + s.start, start + s.body, s.title, s.level) for s in parsed.sections)

    def page(self) -> None:
        """Begin the next page. What stands before the first is part of it."""
        number = len(self._pages) + 1
        if number > MAX_PAGES:
            raise TooLarge(f"it has more than {MAX_PAGES:,} pages: split it")
        self._pages.append(Page(number, self._length if self._pages else 0, self._length))

    def parsed(self, title: str, format_: Format) -> Parsed:
        return Parsed(title, "".join(self._pieces), tuple(self._pages), format_.value, tuple(self._sections))

    def _append(self, piece: str) -> int:
        """The character at which the piece begins."""
        gap = _GAP if piece and self._length else ""
        start = self._length + len(gap)
        self._length = start + len(piece)
        if self._length > MAX_TEXT_CHARS:
            raise TooLarge(f"it holds more than {MAX_TEXT_CHARS:,} characters: split it")
        self._pieces += gap, piece
        if self._pages and piece:
            page = self._pages[-1]
            is_empty = page.start == page.end
            self._pages[-1] = Page(page.number, start if is_empty else page.start, self._length)
        return start


def without_fields(text: str) -> str:
    """The words of a part of a header. Fields are left out; also the few words beside a field, such as those of
    `Page 3 of 10`."""
    words = text.replace(FIELD, " ")
    is_about_field = FIELD in text and len(words.split()) <= _MAX_WORDS_BESIDE and not any(map(str.isdigit, words))
    return "" if is_about_field or not any(map(str.isalnum, words)) else words


def line_without_fields(words: str) -> str:
    """The words of a line of a header, whose parts stand between tabs."""
    return " ".join(" ".join(map(without_fields, words.split("\t"))).split())
