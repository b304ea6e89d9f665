"""Text of a PDF page that the page does not show: white on white, outside of the page, or too small to be seen.

Text that is drawn without ink (rendering mode 3) is no such text: it is the text layer of a scan.
"""

from collections.abc import Iterator, Sequence
from ctypes import byref, c_float, c_int, c_uint
from itertools import groupby

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.omissions import Omissions
from ingest.parse.pdf_letters import Box, Letter, Turn, text_of

_WHITE = 245
"""Least red, green and blue of what is taken for white."""
_TINY, _TINY_PART = 1.0, 1 / 500
"""Height of a line in points, and of the page, below which it is not read by anybody."""
_MAX_OBJECTS, _MAX_PAIRS, _MAX_DEPTH = 20_000, 2_000_000, 5
"""Limits of one page: on one with more objects, or white letters times backgrounds, white text is read."""
_WITHOUT_OUTLINE = (
    pdfium_raw.FPDF_TEXTRENDERMODE_FILL,
    pdfium_raw.FPDF_TEXTRENDERMODE_INVISIBLE,
    pdfium_raw.FPDF_TEXTRENDERMODE_FILL_CLIP,
)
_TEXT, _PATH, _FORM = (
    pdfium_raw.FPDF_PAGEOBJ_TEXT,
    pdfium_raw.FPDF_PAGEOBJ_PATH,
    pdfium_raw.FPDF_PAGEOBJ_FORM,
)


def shown(
    page: pdfium.PdfPage, text_page: pdfium.PdfTextPage, letters: Sequence[Letter], turn: Turn, omissions: Omissions
) -> list[Letter]:
    """The letters without those that are left out because the author hid them."""
    is_hidden = _hidden(page, text_page, letters, turn)
    if not any(is_hidden):
        return list(letters)
    shown_letters: list[Letter] = []
    for hides, group in groupby(zip(letters, is_hidden, strict=True), key=lambda pair: pair[1]):
        words = [letter for letter, _ in group]
        if not hides or omissions.hidden(text_of(words)):
            shown_letters += words
    return shown_letters


def _hidden(
    page: pdfium.PdfPage, text_page: pdfium.PdfTextPage, letters: Sequence[Letter], turn: Turn
) -> Sequence[bool]:
    bounds = turn.box(*page.get_bbox())
    least = min(_TINY, _TINY_PART * bounds.height)
    hidden: list[bool] = []
    preceding: Box | None = None
    for letter in letters:
        # A line that begins on the page and runs over its edge is one that was cut off, not hidden.
        is_outside = not bounds.holds(letter.box) and not (preceding and preceding.goes_on_with(letter.box))
        hidden.append(is_outside or 0 < letter.box.height < least)
        preceding = None if hidden[-1] else letter.box
    objects = list(_objects(page))
    if len(objects) < _MAX_OBJECTS and any(_is_white_text(item) for item, _ in objects):
        covers = [turn.box(*_bounds(item)) for item, nested in objects if not nested and _is_background(item)]
        white = [n for n, letter in enumerate(letters) if not hidden[n] and _is_white(text_page, letter)]
        for number in white if len(white) * len(covers) <= _MAX_PAIRS else ():
            hidden[number] = not any(cover.holds(letters[number].box) for cover in covers)
    return hidden


def _objects(page: pdfium.PdfPage) -> Iterator[tuple[pdfium_raw.FPDF_PAGEOBJECT, int]]:
    """The objects of a page, each with the number of forms that it lies within."""
    waiting = [
        (pdfium_raw.FPDFPage_GetObject(page, number), 0)
        for number in range(min(pdfium_raw.FPDFPage_CountObjects(page), _MAX_OBJECTS))
    ]
    left = _MAX_OBJECTS
    while waiting and left:
        left -= 1
        item, depth = waiting.pop()
        yield item, depth
        if depth < _MAX_DEPTH and pdfium_raw.FPDFPageObj_GetType(item) == _FORM:
            nested = min(pdfium_raw.FPDFFormObj_CountObjects(item), left)
            waiting += ((pdfium_raw.FPDFFormObj_GetObject(item, number), depth + 1) for number in range(nested))


def _is_white_text(item: pdfium_raw.FPDF_PAGEOBJECT) -> bool:
    return (
        pdfium_raw.FPDFPageObj_GetType(item) == _TEXT
        and pdfium_raw.FPDFTextObj_GetTextRenderMode(item) in _WITHOUT_OUTLINE
        and _is_filled_white(item)
    )


def _is_white(text_page: pdfium.PdfTextPage, letter: Letter) -> bool:
    if letter.place is None:
        return False
    char = pdfium_raw.FPDFText_GetCharIndexFromTextIndex(text_page, letter.place)
    item = pdfium_raw.FPDFText_GetTextObject(text_page, char)
    return bool(item) and _is_white_text(item)


def _is_background(item: pdfium_raw.FPDF_PAGEOBJECT) -> bool:
    """Whether white text may be seen upon it: all but text and what is white itself."""
    kind = pdfium_raw.FPDFPageObj_GetType(item)
    if kind == _PATH:
        fill, stroke = c_int(), c_int()
        pdfium_raw.FPDFPath_GetDrawMode(item, byref(fill), byref(stroke))
        return bool(fill.value) and not _is_filled_white(item)
    return bool(kind != _TEXT)


def _is_filled_white(item: pdfium_raw.FPDF_PAGEOBJECT) -> bool:
    *colours, alpha = c_uint(), c_uint(), c_uint(), c_uint()
    is_plain = pdfium_raw.FPDFPageObj_GetFillColor(item, *map(byref, colours), byref(alpha))
    return bool(is_plain) and all(colour.value >= _WHITE for colour in colours)


def _bounds(item: pdfium_raw.FPDF_PAGEOBJECT) -> Box:
    left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
    pdfium_raw.FPDFPageObj_GetBounds(item, byref(left), byref(bottom), byref(right), byref(top))
    return Box(left.value, bottom.value, right.value, top.value)
