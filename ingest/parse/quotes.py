"""Pages as they look, and quotes found on them: the request and the result, whatever the format.

The text of a document is cleaned when it is read, so its offsets are not those of its pages. Words are found again by
their letters: the pages' characters and the text's are folded in the same way, without spaces, and compared.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct

from ingest.parse.scan import Box, ScannedPage
from ragkv.errors import NotFound, Rejected
from ragkv.text import PRESENTATION_FORMS, normalised, scrub

MAX_PIXELS = 6_000_000
MAX_SCALE = 10.0
MAX_POINTS = 20_000.0
MAX_BOXES = 20_000
MAX_PAGES_AT_ONCE = 20
_GAP = 1.5  # heights of a line between two words of it


class Drawing(Struct, frozen=True, tag="draw"):
    """A request for the picture of page `number`, counted from 1, at most `width` pixels wide."""

    number: int
    width: int


@dataclass(frozen=True, slots=True)
class Quote:
    """Text that was read from a document; characters [start, end) of it are to be found on its pages."""

    text: str
    start: int
    end: int


class Locating(Struct, frozen=True, tag="locate"):
    """A request for boxes on the pages from `first` to `last`. `quotes` are in the order of the text."""

    first: int
    last: int
    quotes: tuple[Quote, ...]


class Picture(Struct, frozen=True, tag="picture"):
    """Rows of red, green and blue bytes, from the top."""

    width: int
    height: int
    pixels: bytes


@dataclass(frozen=True, slots=True)
class BoxedPage:
    """A page of this size, in points, as it is shown; `boxes` are those of a line's words each."""

    number: int
    width: float
    height: float
    boxes: Annotated[tuple[Box, ...], Meta(max_length=MAX_BOXES)]


class Located(Struct, frozen=True, tag="located"):
    """The pages asked for, of `num_pages` in all. `complete`: every quote was found, word for word."""

    num_pages: int
    pages: Annotated[tuple[BoxedPage, ...], Meta(max_length=MAX_PAGES_AT_ONCE)]
    complete: bool


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters of a page of that size, folded. `box`: that of a letter, by its place among them, on the page; empty
    if the page does not show it."""

    number: int
    width: float
    height: float
    text: str
    box: Callable[[int], Box]


def letters_of_scan(page: ScannedPage) -> Letters:
    letters = [
        (letter, line, at)
        for line in page.lines
        for at, character in enumerate(line.text)
        for letter in folded(character)
    ]

    def box(place: int) -> Box:
        _, line, at = letters[place]
        return line.part(at, at + 1)

    return Letters(page.number, page.width, page.height, "".join(letter for letter, _, _ in letters), box)


def pages_to_search(locating: Locating, num_pages: int) -> range:
    """The numbers of the pages asked for, MAX_PAGES_AT_ONCE at most. Raises NotFound if there is no first page."""
    check_page(locating.first, num_pages)
    end = min(locating.last, num_pages, locating.first + MAX_PAGES_AT_ONCE - 1) + 1
    return range(locating.first, end)


def find_quotes(pages: Sequence[Letters], num_pages: int, quotes: tuple[Quote, ...]) -> Located:
    """The boxes of quotes on pages that follow each other. Of what is not found word for word there are none."""
    found_at, complete = _places("".join(page.text for page in pages), quotes)
    boxed, start = [], 0
    for page in pages:
        on_page = (place - start for place in found_at if start <= place < start + len(page.text))
        lines = tuple(_lines([page.box(place) for place in on_page]))
        boxed.append(BoxedPage(page.number, page.width, page.height, lines))
        start += len(page.text)
    return Located(num_pages, tuple(boxed), complete)


def check_page(number: int, num_pages: int) -> None:
    """Check a page's number. Raises NotFound for a page that does not exist."""
    if not 1 <= number <= num_pages:
        raise NotFound(f"there is no page {number}: the document has {num_pages}")


def check_size(width: float, height: float) -> None:
    """Check a page's size. Raises Rejected for a page that is too small or too large."""
    if not (1 <= width <= MAX_POINTS and 1 <= height <= MAX_POINTS):
        raise Rejected("the page is too small or too large to be shown")


def drawing_scale(drawing: Drawing, width: float, height: float) -> float:
    """Pixels a point of the picture of a page of that size."""
    return min(drawing.width / width, math.sqrt(MAX_PIXELS / (width * height)) * 0.99, MAX_SCALE)


@lru_cache(4096)
def folded(character: str) -> str:
    """A character without what cleaning changes: composed or not, shaped or not; nothing for spaces."""
    plain = PRESENTATION_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), character)
    return "".join(normalised("NFD", scrub(plain)).split())


def _places(letters: str, quotes: tuple[Quote, ...]) -> tuple[list[int], bool]:
    """The places among the pages' letters of what is quoted, and whether all was found."""
    places: list[int] = []
    complete, behind = True, 0
    for quote in quotes:
        preceding, words, after = (
            "".join(map(folded, part))
            for part in (quote.text[: quote.start], quote.text[quote.start : quote.end], quote.text[quote.end :])
        )
        at = letters.find(preceding + words + after, behind)
        if at < 0:
            complete = complete and not words
            continue
        behind = at + len(preceding) + len(words) + len(after)
        places += range(at + len(preceding), at + len(preceding) + len(words))
    return places, complete


def _lines(boxes: list[Box]) -> list[Box]:
    """Boxes of letters joined to those of lines, columns apart."""
    lines: list[Box] = []
    for box in (box for box in boxes if box.width and box.height):
        if not lines or not _is_on(lines[-1], box):
            lines.append(box)
            continue
        line = lines[-1]
        x, y = min(line.x, box.x), min(line.y, box.y)
        right, bottom = max(line.x + line.width, box.x + box.width), max(line.y + line.height, box.y + box.height)
        lines[-1] = Box(x, y, right - x, bottom - y)
    return lines


def _is_on(line: Box, box: Box) -> bool:
    """Whether a letter continues a line, which may run downwards if it is as narrow as the letter."""
    across = min(line.x + line.width, box.x + box.width) - max(line.x, box.x)  # shared if positive, else apart
    down = min(line.y + line.height, box.y + box.height) - max(line.y, box.y)
    if down >= min(line.height, box.height) / 2:
        return -across <= _GAP * max(line.height, box.height)
    is_narrow = max(line.width, box.width) <= _GAP * min(line.width, box.width)
    return is_narrow and across >= box.width / 2 and -down <= _GAP * box.width
