"""Objects that a PDF page draws: texts, paths, pictures, and those of forms within it."""

from ctypes import byref, c_float, c_uint
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.pdf_letters import Box

MAX_OBJECTS = 20_000
"""Of one page; the others are not looked at."""
_MAX_DEPTH = 5
_WHITE = 245
"""Least red, green and blue of what is taken for white."""
TEXT, PATH, _FORM = (pdfium_raw.FPDF_PAGEOBJ_TEXT, pdfium_raw.FPDF_PAGEOBJ_PATH, pdfium_raw.FPDF_PAGEOBJ_FORM)


class Drawn(NamedTuple):
    """An object; `depth` is the number of forms that it lies within."""

    item: pdfium_raw.FPDF_PAGEOBJECT
    kind: int
    depth: int


def objects_of(page: pdfium.PdfPage) -> list[Drawn]:
    """The objects of a page, those within forms last."""
    raw_page = page.raw
    count = min(pdfium_raw.FPDFPage_CountObjects(raw_page), MAX_OBJECTS)
    objects = [_drawn(pdfium_raw.FPDFPage_GetObject(raw_page, number), 0) for number in range(count)]
    for form in objects:  # grows by what the forms hold
        if form.kind == _FORM and form.depth < _MAX_DEPTH:
            count = min(pdfium_raw.FPDFFormObj_CountObjects(form.item), MAX_OBJECTS - len(objects))
            nested = (pdfium_raw.FPDFFormObj_GetObject(form.item, number) for number in range(count))
            objects += [_drawn(item, form.depth + 1) for item in nested]
    return objects


def _drawn(item: pdfium_raw.FPDF_PAGEOBJECT, depth: int) -> Drawn:
    return Drawn(item, pdfium_raw.FPDFPageObj_GetType(item), depth)


def is_filled_white(item: pdfium_raw.FPDF_PAGEOBJECT) -> bool:
    *colours, alpha = c_uint(), c_uint(), c_uint(), c_uint()
    is_plain = pdfium_raw.FPDFPageObj_GetFillColor(item, *map(byref, colours), byref(alpha))
    return bool(is_plain) and all(colour.value >= _WHITE for colour in colours)


def bounds_of(item: pdfium_raw.FPDF_PAGEOBJECT) -> Box:
    left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
    pdfium_raw.FPDFPageObj_GetBounds(item, byref(left), byref(bottom), byref(right), byref(top))
    return Box(left.value, bottom.value, right.value, top.value)
