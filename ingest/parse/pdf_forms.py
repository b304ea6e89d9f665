"""Fields of a PDF form: a mark for each box and button, beside its label, and values beside theirs."""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, suppress
from ctypes import byref
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.pdf_letters import Box, Letter, Turn, put_in

_MAX_FIELDS, _MAX_PAIRS = 2_000, 1_000_000
"""Limits of one page; the second is of fields times letters."""
_NEAR = 3.0
"""Heights of a line between a box and its label."""
_TOUCHING = 2.0
"""Points by which a field may lie upon its label."""
_TICKS = frozenset("45678lnuHXx")
"""Letters of the font ZapfDingbats, and others, with which ticks are drawn."""
_UNSEEN = pdfium_raw.FPDF_ANNOT_FLAG_HIDDEN | pdfium_raw.FPDF_ANNOT_FLAG_NOVIEW
_BUTTONS = (pdfium_raw.FPDF_FORMFIELD_CHECKBOX, pdfium_raw.FPDF_FORMFIELD_RADIOBUTTON)
_VALUES = (pdfium_raw.FPDF_FORMFIELD_TEXTFIELD, pdfium_raw.FPDF_FORMFIELD_COMBOBOX, pdfium_raw.FPDF_FORMFIELD_LISTBOX)


class Field(NamedTuple):
    """A field's place. `mark` is that of a box or button, empty for a field whose value the page shows as text."""

    box: Box
    mark: str


def fields_of(document: pdfium.PdfDocument, index: int) -> list[Field]:
    """The fields of a page that is not flattened yet."""
    if document.get_formtype() == pdfium_raw.FORMTYPE_NONE:
        return []
    document.init_forms()
    with suppress(pdfium.PdfiumError), closing(document[index]) as page:  # a damaged page is refused when it is read
        count = min(pdfium_raw.FPDFPage_GetAnnotCount(page), _MAX_FIELDS)
        return [field for number in range(count) if (field := _field(document.formenv, page, number))]
    return []


def _field(form: pdfium.PdfFormEnv | None, page: pdfium.PdfPage, number: int) -> Field | None:
    annotation = pdfium_raw.FPDFPage_GetAnnot(page, number)
    try:
        kind = pdfium_raw.FPDFAnnot_GetFormFieldType(form, annotation)
        rect = pdfium_raw.FS_RECTF()
        is_seen = not pdfium_raw.FPDFAnnot_GetFlags(annotation) & _UNSEEN
        if kind not in (*_BUTTONS, *_VALUES) or not (is_seen and pdfium_raw.FPDFAnnot_GetRect(annotation, byref(rect))):
            return None
        is_ticked = kind in _BUTTONS and pdfium_raw.FPDFAnnot_IsChecked(form, annotation)
        mark = "" if kind in _VALUES else "[x]" if is_ticked else "[ ]"
        return Field(Box(rect.left, rect.bottom, rect.right, rect.top), mark)
    finally:
        pdfium_raw.FPDFPage_CloseAnnot(annotation)


def with_fields(letters: Sequence[Letter], fields: Sequence[Field], turn: Turn) -> Sequence[Letter]:
    """The letters with marks, and with values where their labels are."""
    if len(letters) * len(fields) > _MAX_PAIRS:
        return letters
    ticks: set[int] = set()  # letters that may be ticks, by identity: those that stand alone
    for number, letter in enumerate(letters):
        is_alone = (letter.gap or not number) and (number + 1 == len(letters) or letters[number + 1].gap)
        if is_alone and (letter.character in _TICKS or not letter.character.isalnum()):
            ticks.add(id(letter))
    for field in fields:
        box = turn.box(*field.box)
        letters = list(_marked(letters, box, field.mark, ticks)) if field.mark else _valued(letters, box)
    return letters


def _marked(letters: Sequence[Letter], field: Box, mark: str, ticks: Container[int]) -> Iterator[Letter]:
    """The mark, in place of its tick, before the word inside of a box or to its right, else behind that to the left,
    else at its place alone."""
    letters = [letter for letter in letters if not (id(letter) in ticks and field.holds(letter.box))]
    row = [letter for letter in letters if letter.box.is_beside(field)]
    inside = next(filter(lambda letter: field.holds(letter.box), row), None)
    label = inside or _nearest(row, lambda letter: letter.box.left - field.right)
    label_at_left = None if label else _nearest(row, lambda letter: field.left - letter.box.right)
    for letter in letters:
        if letter is label:
            bracket, *signs = put_in(mark, letter.box)
            yield from (bracket._replace(gap=letter.gap), *signs, letter._replace(gap=" "))
        elif letter is label_at_left:
            yield from (letter, *put_in(f" {mark}", letter.box))
        else:
            yield letter
    if not (label or label_at_left):
        yield from put_in(f"\n{mark}", field)


def _nearest(row: Sequence[Letter], distance: Callable[[Letter], float]) -> Letter | None:
    """The letter of least distance, if that is near."""
    near = [(away, letter) for letter in row if -_TOUCHING <= (away := distance(letter)) <= _NEAR * letter.box.height]
    return min(near, key=lambda pair: pair[0])[1] if near else None


def _valued(letters: Sequence[Letter], field: Box) -> Sequence[Letter]:
    """The letters with those inside the field behind its label: to its left, else above it."""
    inside = [letter for letter in letters if field.holds(letter.box)]
    outside = [letter for letter in letters if not field.holds(letter.box)]
    beside = [
        letter for letter in outside if letter.box.is_beside(field) and letter.box.right <= field.left + _TOUCHING
    ]
    above = [
        letter
        for letter in outside
        if field.left - _TOUCHING <= letter.box.left <= field.right
        and -_TOUCHING <= letter.box.bottom - field.top <= letter.box.height
    ]
    if not inside or not (labels := beside or above):
        return letters
    label = max(labels, key=lambda letter: letter.box.right)
    at = next(number for number, letter in enumerate(outside) if letter is label) + 1
    following = next((n for n, letter in enumerate(outside) if (letter.place or 0) > (inside[-1].place or 0)), at)
    if following > at and "\n" in inside[0].gap:  # what is behind the value begins the line that it began
        outside[following] = outside[following]._replace(gap="\n")
    return [*outside[:at], inside[0]._replace(gap=" "), *inside[1:], *outside[at:]]
