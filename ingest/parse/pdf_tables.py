"""The characters of a PDF page in text order: tables become rows with labels.

A table is a grid (`pdf_grids`, `pdf_open_grids`) with a first row that labels the others. What is none for sure stays
the words that it is: wrong rows are worse than words.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.pdf_grids import Grid, closed_grids, ruled
from ingest.parse.pdf_open_grids import Box, open_grids, unruled_grids
from ingest.parse.rows import SEPARATOR, is_header, labels_of

_LEAST_FILLED = 0.5

Character = tuple[str, int | None]
"""A character, and its index in the page's own text, as PDFium counts: in UTF-16 code units. None for one that was put
in."""


class _Letter(NamedTuple):
    """A character that is not space, its index in the page's own text, and where it is."""

    character: str
    place: int
    box: Box


def characters(page: pdfium.PdfPage, text_page: pdfium.PdfTextPage) -> list[Character]:
    """The page's text. A table's characters stand where the first of them was; its header's, again in every row."""
    raw: list[Character] = list(_numbered(text_page))
    letters = [] if page.get_rotation() else _letters(text_page)
    for grid in _grids(page, letters) if letters else ():
        cells = _cells(grid, letters)
        if _is_table(cells):
            inside = {index for row in cells for cell in row for _, index in cell if index is not None}
            place_of_table = next(place for place, (_, index) in enumerate(raw) if index in inside)
            preceding, after = (
                [character for character in part if character[1] not in inside]
                for part in (raw[:place_of_table], raw[place_of_table:])
            )
            raw = [*preceding, *_put_in("\n\n"), *_lines(cells), *_put_in("\n"), *after]
    return raw


def _grids(page: pdfium.PdfPage, letters: Sequence[_Letter]) -> list[Grid]:
    """Grids that do not overlap, from the surest kind to the least sure."""
    across, down = ruled(page)
    boxes = [letter.box for letter in letters]
    grids: list[Grid] = []
    for grid in chain(
        closed_grids(across, down),
        open_grids(across, down, boxes),
        unruled_grids([(letter.character, letter.box) for letter in letters]),
    ):
        if not any(map(grid.overlaps, grids)):
            grids.append(grid)
    return grids


def _is_table(cells: list[list[list[Character]]]) -> bool:
    header, *rows = ([_words(cell) for cell in row] for row in cells)
    filled = sum(map(bool, (words for row in rows for words in row)))
    return filled >= _LEAST_FILLED * len(rows) * len(header) and is_header(header, rows)


def _letters(text_page: pdfium.PdfTextPage) -> list[_Letter]:
    letters = []
    for character, index in _numbered(text_page):
        if not character.isspace():
            char = pdfium_raw.FPDFText_GetCharIndexFromTextIndex(text_page, index)
            letters.append(_Letter(character, index, Box(*text_page.get_charbox(char, loose=True))))
    return letters


def _numbered(text_page: pdfium.PdfTextPage) -> Iterator[tuple[str, int]]:
    """The page's characters with their indices. Half a surrogate pair is kept: it counts, too."""
    index = 0
    for character in text_page.get_text_range(errors="surrogatepass"):
        yield character, index
        index += _num_units(character)


def _num_units(character: str) -> int:
    return 2 if character > "\uffff" else 1


def _cells(grid: Grid, letters: Sequence[_Letter]) -> list[list[list[Character]]]:
    """The characters of each cell, row by row, one space for all that lies between two of its words."""
    cells: list[list[list[Character]]] = [[[] for _ in grid.xs[1:]] for _ in grid.ys[1:]]
    for character, index, box in letters:
        if (place := grid.cell((box.left + box.right) / 2, box.middle)) is not None:
            cell = cells[place[0]][place[1]]
            if cell and cell[-1][1] != index - _num_units(cell[-1][0]):
                cell.append((" ", None))
            cell.append((character, index))
    return cells


def _lines(cells: list[list[list[Character]]]) -> Iterator[Character]:
    """The table's text as `ingest.parse.rows.lines_of_table` writes it, a labelled row a paragraph."""
    header, *rows = cells
    labels = [cell[: len(label)] for cell, label in zip(header, labels_of(list(map(_words, header))), strict=True)]
    yield from _joined(header)
    for row in filter(any, rows):
        yield from _put_in("\n\n")
        yield from _joined(
            [*label, *_put_in(": "), *cell] if label and cell else cell for label, cell in zip(labels, row, strict=True)
        )


def _joined(cells: Iterable[list[Character]]) -> Iterator[Character]:
    separator = ""
    for cell in filter(None, cells):
        yield from _put_in(separator)
        yield from cell
        separator = SEPARATOR


def _put_in(words: str) -> list[Character]:
    return [(character, None) for character in words]


def _words(cell: Iterable[Character]) -> str:
    return "".join(character for character, _ in cell)
