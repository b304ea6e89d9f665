"""Pages of a PDF as they look: a picture, and the boxes of words that were read from them.

The text of a PDF is cleaned when it is read, so its offsets are not PDFium's. Words are found again by their letters: the
pages' characters and the text's are folded in the same way, without spaces, and compared.
"""

import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from ctypes import byref, c_int
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw
from msgspec import Meta

from ingest.parse.clean import scrub
from ingest.parse.pdf import LINE_END_HYPHEN, PDFIUM, PRESENTATION_FORMS, end_of_line, opened, page_at
from ragkv.errors import NotFound, Rejected
from ragkv.normal_form import normalised

MAX_PIXELS = 6_000_000
MAX_SCALE = 10.0
MAX_POINTS = 20_000.0
MAX_BOXES = 20_000
MAX_PAGES_AT_ONCE = 20
_UNITS_A_POINT = 64
_GAP = 1.5  # heights of a line between two words of it


@dataclass(frozen=True, slots=True)
class Drawing:
    """A request for the picture of page `number`, counted from 1, at most `width` pixels wide."""

    number: int
    width: int


@dataclass(frozen=True, slots=True)
class Quote:
    """Text that was read from a document; characters [start, end) of it are to be found on its pages."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Locating:
    """A request for boxes on the pages from `first` to `last`. `quotes` are in the order of the text."""

    first: int
    last: int
    quotes: tuple[Quote, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """Rows of red, green and blue bytes, from the top."""

    width: int
    height: int
    pixels: bytes


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on a page, in points from its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class BoxedPage:
    """A page of this size, in points, as it is shown; `boxes` are those of a line's words each."""

    number: int
    width: float
    height: float
    boxes: Annotated[tuple[Box, ...], Meta(max_length=MAX_BOXES)]


@dataclass(frozen=True, slots=True)
class Located:
    """The pages asked for, of `num_pages` in all. `complete`: every quote was found, word for word."""

    num_pages: int
    pages: Annotated[tuple[BoxedPage, ...], Meta(max_length=MAX_PAGES_AT_ONCE)]
    complete: bool


def draw(body: bytes, asked: Drawing) -> Picture:
    """The picture of a page, of at most MAX_PIXELS. Raises NotFound for a page that there is not, and Rejected."""
    with PDFIUM, opened(body) as document:
        _check_page(document, asked.number)
        with page_at(document, asked.number - 1) as page:
            width, height = _size(page)
            scale = min(asked.width / width, (MAX_PIXELS / (width * height)) ** 0.5 * 0.99, MAX_SCALE)
            with closing(page.render(scale=scale, rev_byteorder=True, force_bitmap_format=_RGB)) as bitmap:
                row, rows = bitmap.width * 3, bytes(bitmap.buffer)
                if bitmap.stride != row:
                    rows = b"".join(rows[start : start + row] for start in range(0, len(rows), bitmap.stride))
                return Picture(bitmap.width, bitmap.height, rows)


def locate(body: bytes, asked: Locating) -> Located:
    """The boxes of quotes on pages. Of what is not found word for word there are none.

    Raises NotFound if there is no first page, and Rejected for a file that cannot be read.
    """
    with PDFIUM, opened(body) as document, ExitStack() as stack:
        num_pages = len(document)
        _check_page(document, asked.first)
        last = min(asked.last, num_pages, asked.first + MAX_PAGES_AT_ONCE - 1)
        pages = [stack.enter_context(_letters(document, number)) for number in range(asked.first, last + 1)]
        found, complete = _places("".join(page.text for page in pages), asked.quotes)
        boxed, start = [], 0
        for page in pages:
            on_page = (place - start for place in found if start <= place < start + len(page.text))
            lines = tuple(_lines([page.box(place) for place in on_page]))
            boxed.append(BoxedPage(page.number, page.width, page.height, lines))
            start += len(page.text)
    return Located(num_pages, tuple(boxed), complete)


_RGB = pdfium_raw.FPDFBitmap_BGR  # turned by rev_byteorder


@dataclass(frozen=True, slots=True)
class _Letters:
    """The letters of an open page, folded; `indices` are those of the page's own characters."""

    number: int
    page: pdfium.PdfPage
    text_page: pdfium.PdfTextPage
    width: float
    height: float
    text: str
    indices: list[int]

    def box(self, place: int) -> Box:
        """Where the page shows a letter: an empty box if that is outside of it."""
        char = pdfium_raw.FPDFText_GetCharIndexFromTextIndex(self.text_page, self.indices[place])
        left, bottom, right, top = self.text_page.get_charbox(char, loose=True)
        (x1, y1), (x2, y2) = self._shown(left, bottom), self._shown(right, top)
        x_min, x_max = (min(max(x, 0.0), self.width) for x in sorted((x1, x2)))
        y_min, y_max = (min(max(y, 0.0), self.height) for y in sorted((y1, y2)))
        return Box(x_min, y_min, x_max - x_min, y_max - y_min)

    def _shown(self, x: float, y: float) -> tuple[float, float]:
        """A point of the page's own coordinates as it is shown, after the page's rotation and crop box."""
        across, down = c_int(), c_int()
        units = int(self.width * _UNITS_A_POINT), int(self.height * _UNITS_A_POINT)
        pdfium_raw.FPDF_PageToDevice(self.page, 0, 0, *units, 0, x, y, byref(across), byref(down))
        return across.value / _UNITS_A_POINT, down.value / _UNITS_A_POINT


@contextmanager
def _letters(document: pdfium.PdfDocument, number: int) -> Iterator[_Letters]:
    with page_at(document, number - 1) as page, closing(page.get_textpage()) as text_page:
        width, height = _size(page)
        raw = text_page.get_text_range()
        kept_hyphens = {cut.start(): end_of_line(cut) for cut in LINE_END_HYPHEN.finditer(raw)}
        letters: list[str] = []
        indices: list[int] = []
        for index, character in enumerate(raw):
            folded = _folded(kept_hyphens.get(index, character))
            letters.append(folded)
            indices += [index] * len(folded)
        yield _Letters(number, page, text_page, width, height, "".join(letters), indices)


def _check_page(document: pdfium.PdfDocument, number: int) -> None:
    if not 1 <= number <= len(document):
        raise NotFound(f"there is no page {number}: the document has {len(document)}")


def _size(page: pdfium.PdfPage) -> tuple[float, float]:
    width, height = page.get_size()
    if not (1 <= width <= MAX_POINTS and 1 <= height <= MAX_POINTS):
        raise Rejected("the page is too small or too large to be shown")
    return width, height


@lru_cache(4096)
def _folded(character: str) -> str:
    """A character without what cleaning changes: composed or not, shaped or not; nothing for spaces."""
    plain = PRESENTATION_FORMS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), character)
    return "".join(normalised("NFD", scrub(plain)).split())


def _places(letters: str, quotes: tuple[Quote, ...]) -> tuple[list[int], bool]:
    """The places among the pages' letters of what is quoted, and whether all was found."""
    places: list[int] = []
    complete, behind = True, 0
    for quote in quotes:
        before, words, after = (
            "".join(map(_folded, part))
            for part in (quote.text[: quote.start], quote.text[quote.start : quote.end], quote.text[quote.end :])
        )
        at = letters.find(before + words + after, behind)
        if at < 0:
            complete = complete and not words
            continue
        behind = at + len(before) + len(words) + len(after)
        places += range(at + len(before), at + len(before) + len(words))
    return places, complete


def _lines(boxes: list[Box]) -> Iterator[Box]:
    """Boxes of letters joined to those of lines, columns apart."""
    line: Box | None = None
    for box in (box for box in boxes if box.width and box.height):
        if line is not None and _is_on(line, box):
            line = _union(line, box)
            continue
        if line is not None:
            yield line
        line = box
    if line is not None:
        yield line


def _is_on(line: Box, box: Box) -> bool:
    """Whether a letter continues a line, which may run downwards if it is as narrow as the letter."""
    across = min(line.x + line.width, box.x + box.width) - max(line.x, box.x)  # shared if positive, else apart
    down = min(line.y + line.height, box.y + box.height) - max(line.y, box.y)
    if down >= min(line.height, box.height) / 2:
        return -across <= _GAP * max(line.height, box.height)
    is_narrow = max(line.width, box.width) <= _GAP * min(line.width, box.width)
    return is_narrow and across >= box.width / 2 and -down <= _GAP * box.width


def _union(one: Box, other: Box) -> Box:
    x, y = min(one.x, other.x), min(one.y, other.y)
    right, bottom = max(one.x + one.width, other.x + other.width), max(one.y + one.height, other.y + other.height)
    return Box(x, y, right - x, bottom - y)
