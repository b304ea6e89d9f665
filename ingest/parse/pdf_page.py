"""Pages of a PDF as they look: a picture, and the boxes of the words read from it."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from ctypes import byref, c_int

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.parsed import Omissions
from ingest.parse.pdf import LINE_END_HYPHEN, PDFIUM, drawn_pages, end_of_line, opened, page_at
from ingest.parse.pdf_letters import Letter, text_of
from ingest.parse.pdf_pages import DrawnPage, in_order, may_go_on
from ingest.parse.pdf_running import REACH
from ingest.parse.quotes import (
    Drawing,
    Letters,
    Located,
    Locating,
    Picture,
    check_page,
    check_size,
    drawing_scale,
    find_quotes,
    folded,
    letters_of_scan,
    pages_to_search,
)
from ingest.parse.scan import Box, ScannedPage

_UNITS_A_POINT = 64
_MAX_BACK = 50
"""Pages before the first that are read for the labels of a table that goes on with it."""
_RGB = pdfium_raw.FPDFBitmap_BGR  # turned by rev_byteorder


def draw_pdf(body: bytes, drawing: Drawing) -> Picture:
    """The picture of a page. Raises NotFound for a page that does not exist, and Rejected."""
    with PDFIUM, opened(body) as document:
        check_page(drawing.number, len(document))
        with page_at(document, drawing.number - 1) as page:
            scale = drawing_scale(drawing, *_size(page))
            with closing(page.render(scale=scale, rev_byteorder=True, force_bitmap_format=_RGB)) as bitmap:
                row, rows = bitmap.width * 3, bytes(bitmap.buffer)
                if bitmap.stride != row:
                    rows = b"".join(rows[start : start + row] for start in range(0, len(rows), bitmap.stride))
                return Picture(bitmap.width, bitmap.height, rows)


def locate_in_pdf(body: bytes, locating: Locating, scans: tuple[ScannedPage, ...]) -> Located:
    """The boxes of quotes on pages; those of `scans` have the lines that were read from them.

    Raises NotFound if there is no first page, and Rejected for a file that cannot be read.
    """
    omissions = Omissions()
    located = _located(body, locating, scans, omissions)
    if not located.complete and omissions.left_out.hidden_words:  # the document may have been read with them
        return _located(body, locating, scans, Omissions(keeps_hidden=True))
    return located


def _located(body: bytes, locating: Locating, scans: tuple[ScannedPage, ...], omissions: Omissions) -> Located:
    by_number = {page.number: page for page in scans}
    with PDFIUM, opened(body) as document, ExitStack() as stack:
        numbers = pages_to_search(locating, len(document))
        texts = {page.number: letters for page, letters in in_order(_around(document, numbers, omissions))}
        pages = [
            letters_of_scan(by_number[number])
            if number in by_number
            else stack.enter_context(_letters(document, number, texts[number]))
            for number in numbers
        ]
        return find_quotes(pages, len(document), locating.quotes)


def _around(document: pdfium.PdfDocument, numbers: range, omissions: Omissions) -> Sequence[DrawnPage]:
    """Pages that follow each other, those in whose table the first may begin, and REACH pages on both sides: with them
    letters are those that are read with the whole document."""
    begin = start = numbers.start
    around = range(max(start - REACH, 1) - 1, min(numbers.stop - 1 + REACH, len(document)))
    pages = deque(drawn_pages(document, around, omissions))
    while begin > max(start - _MAX_BACK, 1) and may_go_on(pages[begin - pages[0].number], pages):
        begin -= 1
        if begin > REACH:
            pages.extendleft(drawn_pages(document, [begin - REACH - 1], omissions))
    return pages


@contextmanager
def _letters(document: pdfium.PdfDocument, number: int, letters: Sequence[Letter]) -> Iterator[Letters]:
    """The letters of a page, which is open meanwhile."""
    kept_hyphens = {cut.start(): end_of_line(cut) for cut in LINE_END_HYPHEN.finditer(text_of(letters))}
    text: list[str] = []
    indices: list[int | None] = []  # those of `pdf_letters.Letter`
    place = 0
    for letter in letters:
        place += len(letter.gap)
        plain = folded(kept_hyphens.get(place, letter.character))
        text.append(plain)
        indices += [letter.place] * len(plain)
        place += 1
    with page_at(document, number - 1) as page, closing(page.get_textpage()) as text_page:
        width, height = _size(page)
        units = int(width * _UNITS_A_POINT), int(height * _UNITS_A_POINT)

        def shown(x: float, y: float) -> tuple[float, float]:
            """A point of the page's own coordinates as it is shown, after the page's rotation and crop box."""
            across, down = c_int(), c_int()
            pdfium_raw.FPDF_PageToDevice(page, 0, 0, *units, 0, x, y, byref(across), byref(down))
            return across.value / _UNITS_A_POINT, down.value / _UNITS_A_POINT

        def box(place: int) -> Box:
            if (index := indices[place]) is None:
                return Box(0.0, 0.0, 0.0, 0.0)
            char = pdfium_raw.FPDFText_GetCharIndexFromTextIndex(text_page, index)
            left, bottom, right, top = text_page.get_charbox(char, loose=True)
            (x1, y1), (x2, y2) = shown(left, bottom), shown(right, top)
            x_min, x_max = (min(max(x, 0.0), width) for x in sorted((x1, x2)))
            y_min, y_max = (min(max(y, 0.0), height) for y in sorted((y1, y2)))
            return Box(x_min, y_min, x_max - x_min, y_max - y_min)

        yield Letters(number, width, height, "".join(text), box)


def _size(page: pdfium.PdfPage) -> tuple[float, float]:
    width, height = page.get_size()
    check_size(width, height)
    return width, height
