"""Text of a PDF page that the page does not show: white on white, outside of the page, or too small to be seen.

Text that is drawn without ink (rendering mode 3) is no such text: it is the text layer of a scan.
"""

from collections.abc import Sequence
from ctypes import byref, c_int
from itertools import groupby

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.parsed import Omissions
from ingest.parse.pdf_letters import Box, Letter, Turn, around, text_of
from ingest.parse.pdf_objects import MAX_OBJECTS, PATH, TEXT, Drawn, bounds_of, is_filled_white

_TINY, _TINY_PART = 1.0, 1 / 500
"""Height of a line in points, and of the page, below which it is not read by anybody."""
_MAX_PAIRS = 2_000_000
"""White letters times backgrounds: on a page with more of them, or of objects, white text is read."""
_WITHOUT_OUTLINE = (
    pdfium_raw.FPDF_TEXTRENDERMODE_FILL,
    pdfium_raw.FPDF_TEXTRENDERMODE_INVISIBLE,
    pdfium_raw.FPDF_TEXTRENDERMODE_FILL_CLIP,
)


def shown(
    text_page: pdfium.PdfTextPage, letters: Sequence[Letter], objects: Sequence[Drawn], turn: Turn, omissions: Omissions
) -> list[Letter]:
    """The letters without those that are left out because the author hid them."""
    is_hidden = _hidden(text_page, letters, objects, turn)
    if not any(is_hidden):
        return list(letters)
    shown_letters: list[Letter] = []
    for hides, group in groupby(zip(letters, is_hidden, strict=True), key=lambda pair: pair[1]):
        words = [letter for letter, _ in group]
        if not hides or omissions.hidden(text_of(words)):
            shown_letters += words
    return shown_letters


def _hidden(
    text_page: pdfium.PdfTextPage, letters: Sequence[Letter], objects: Sequence[Drawn], turn: Turn
) -> Sequence[bool]:
    bounds = turn.box(*text_page.page.get_bbox())
    least = min(_TINY, _TINY_PART * bounds.height)
    boxes = [letter.box for letter in letters]
    is_plain = boxes and bounds.encloses(around(boxes)) and min(box.top - box.bottom for box in boxes) >= least
    hidden = [False] * len(letters)
    preceding: Box | None = None
    for number, box in enumerate(() if is_plain else boxes):
        # A line that begins on the page and runs over its edge is one that was cut off, not hidden.
        is_outside = not bounds.holds(box) and not (preceding and preceding.goes_on_with(box))
        hidden[number] = is_outside or 0 < box.height < least
        preceding = None if hidden[number] else box
    texts = (drawn.item for drawn in objects if drawn.kind == TEXT) if len(objects) < MAX_OBJECTS else ()
    if any(map(_is_white_text, texts)):
        covers = [turn.box(*bounds_of(drawn.item)) for drawn in objects if not drawn.depth and _is_background(drawn)]
        white = [n for n, letter in enumerate(letters) if not hidden[n] and _is_white(text_page, letter)]
        for number in white if len(white) * len(covers) <= _MAX_PAIRS else ():
            hidden[number] = not any(cover.holds(letters[number].box) for cover in covers)
    return hidden


def _is_white_text(item: pdfium_raw.FPDF_PAGEOBJECT) -> bool:
    return pdfium_raw.FPDFTextObj_GetTextRenderMode(item) in _WITHOUT_OUTLINE and is_filled_white(item)


def _is_white(text_page: pdfium.PdfTextPage, letter: Letter) -> bool:
    if letter.place is None:
        return False
    char = pdfium_raw.FPDFText_GetCharIndexFromTextIndex(text_page, letter.place)
    item = pdfium_raw.FPDFText_GetTextObject(text_page, char)
    return bool(item) and _is_white_text(item)


def _is_background(drawn: Drawn) -> bool:
    """Whether white text may be seen upon it: all but text and what is white itself."""
    if drawn.kind == PATH:
        fill, stroke = c_int(), c_int()
        pdfium_raw.FPDFPath_GetDrawMode(drawn.item, byref(fill), byref(stroke))
        return bool(fill.value) and not is_filled_white(drawn.item)
    return bool(drawn.kind != TEXT)
