"""Characters of a PDF's page in the order of its text: tables that are ruled on all sides become rows with labels.

A table is a grid of lines that all reach from side to side, with a first row that labels the others. Grids with merged
cells, and tables that are not ruled, stay the words that they are: wrong rows are worse than words.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from ctypes import byref, c_float, c_int
from itertools import chain, pairwise
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.rows import SEPARATOR, is_header, labels_of

_TOLERANCE = 3.0
"""Points between lines that are one, and between lines that meet."""
_MAX_OBJECTS, _MAX_SEGMENTS, _MAX_PAIRS = 20_000, 6_000, 20_000
"""Limits of one page: on one with more no table is looked for."""
_SHORTEST = 6.0
_LEAST_ROWS, _LEAST_COLUMNS, _LEAST_FILLED = 3, 2, 0.5

Character = tuple[str, int | None]
"""A character, and its index in the page's own text; None for one that was put in."""


class _Line(NamedTuple):
    """A line at a height, or at a distance from the left, and from where to where it reaches."""

    at: float
    start: float
    end: float


class _Grid(NamedTuple):
    """Places of the lines of a table, ascending."""

    xs: list[float]
    ys: list[float]

    def cell(self, x: float, y: float) -> tuple[int, int] | None:
        """(row from the top, column) of a point."""
        if not (self.xs[0] <= x < self.xs[-1] and self.ys[0] <= y < self.ys[-1]):
            return None
        return len(self.ys) - 1 - bisect_right(self.ys, y), bisect_right(self.xs, x) - 1


def characters(page: pdfium.PdfPage, text_page: pdfium.PdfTextPage) -> list[Character]:
    """The page's text. A table's characters stand where the first of them was; its header's, again in every row."""
    raw: list[Character] = [(character, index) for index, character in enumerate(text_page.get_text_range())]
    for grid in _grids(page):
        cells = _cells(grid, raw, text_page)
        if _is_table(cells):
            inside = {index for row in cells for cell in row for _, index in cell if index is not None}
            first = next(place for place, (_, index) in enumerate(raw) if index in inside)
            before, after = ([one for one in part if one[1] not in inside] for part in (raw[:first], raw[first:]))
            raw = [*before, *_put_in("\n\n"), *_lines(cells), *_put_in("\n"), *after]
    return raw


def _is_table(cells: list[list[list[Character]]]) -> bool:
    header, *rows = ([_words(cell) for cell in row] for row in cells)
    filled = sum(map(bool, (words for row in rows for words in row)))
    return filled >= _LEAST_FILLED * len(rows) * len(header) and is_header(header, rows)


def _cells(grid: _Grid, raw: Sequence[Character], text_page: pdfium.PdfTextPage) -> list[list[list[Character]]]:
    """The characters of each cell, row by row, one space for all that lies between two of its words."""
    cells: list[list[list[Character]]] = [[[] for _ in grid.xs[1:]] for _ in grid.ys[1:]]
    for before, (character, index) in zip([None, *(index for _, index in raw)], raw, strict=False):
        if index is None or character.isspace():
            continue
        char = pdfium_raw.FPDFText_GetCharIndexFromTextIndex(text_page, index)
        left, bottom, right, top = text_page.get_charbox(char)
        if (place := grid.cell((left + right) / 2, (bottom + top) / 2)) is not None:
            cell = cells[place[0]][place[1]]
            if cell and cell[-1][1] != before:
                cell.append((" ", None))
            cell.append((character, index))
    return cells


def _lines(cells: list[list[list[Character]]]) -> Iterator[Character]:
    """The table's text as `ingest.parse.rows.lines_of_table` writes it, a labelled row a paragraph."""
    header, *rows = cells
    labels = [cell[: len(label)] for cell, label in zip(header, labels_of(list(map(_words, header))), strict=True)]
    yield from _joined(header)
    for row in rows:
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


def _grids(page: pdfium.PdfPage) -> list[_Grid]:
    if page.get_rotation():
        return []
    across, down = _ruled(page)
    if len(across) <= _LEAST_ROWS or len(down) <= _LEAST_COLUMNS or len(across) * len(down) > _MAX_PAIRS:
        return []
    return [grid for lines, columns in _connected(across, down) if (grid := _grid(lines, columns))]


def _grid(across: list[_Line], down: list[_Line]) -> _Grid | None:
    """The grid of lines that meet, if there are enough and each reaches from side to side."""
    if len(across) <= _LEAST_ROWS or len(down) <= _LEAST_COLUMNS:
        return None
    xs, ys = sorted(line.at for line in down), sorted(line.at for line in across)
    reach = [(line, xs[0], xs[-1]) for line in across] + [(line, ys[0], ys[-1]) for line in down]
    if all(line.start <= low + _TOLERANCE and line.end >= high - _TOLERANCE for line, low, high in reach):
        return _Grid(xs, ys)
    return None


def _connected(across: list[_Line], down: list[_Line]) -> Iterator[tuple[list[_Line], list[_Line]]]:
    """Lines that meet, directly or by way of others."""
    meets = {
        (kind, number): [(not kind, other) for other, line in enumerate(others) if _meet(one, line)]
        for kind, ones, others in ((True, across, down), (False, down, across))
        for number, one in enumerate(ones)
    }
    while meets:
        start, reached = meets.popitem()
        group, waiting = {start}, list(reached)
        while waiting:
            if (one := waiting.pop()) not in group:
                group.add(one)
                waiting += meets.pop(one, ())
        yield [across[n] for kind, n in group if kind], [down[n] for kind, n in group if not kind]


def _meet(one: _Line, other: _Line) -> bool:
    return (
        one.start - _TOLERANCE <= other.at <= one.end + _TOLERANCE
        and other.start - _TOLERANCE <= one.at <= other.end + _TOLERANCE
    )


def _ruled(page: pdfium.PdfPage) -> tuple[list[_Line], list[_Line]]:
    """The lines across and down that the page's paths draw, those in one line joined."""
    across: list[_Line] = []
    down: list[_Line] = []
    for (x1, y1), (x2, y2) in chain.from_iterable(map(_segments, _paths(page))):
        if abs(x1 - x2) >= _SHORTEST and abs(y1 - y2) < 1:
            across.append(_Line(y1, min(x1, x2), max(x1, x2)))
        elif abs(y1 - y2) >= _SHORTEST and abs(x1 - x2) < 1:
            down.append(_Line(x1, min(y1, y2), max(y1, y2)))
    return _merged(across), _merged(down)


def _merged(lines: list[_Line]) -> list[_Line]:
    merged: list[_Line] = []
    for group in _at_one_place(sorted(lines)):
        at = group[0].at
        _, start, end = group[0]
        for line in sorted(group, key=lambda line: line.start):
            if line.start > max(start, end) + _TOLERANCE:
                merged.append(_Line(at, start, end))
                start, end = line.start, line.end
            start, end = min(start, line.start), max(end, line.end)
        merged.append(_Line(at, start, end))
    return merged


def _at_one_place(lines: list[_Line]) -> Iterator[list[_Line]]:
    group: list[_Line] = []
    for line in lines:
        if group and line.at > group[0].at + _TOLERANCE:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _paths(page: pdfium.PdfPage) -> list[pdfium.PdfObject]:
    """Paths that the page draws by itself, not by forms within it; none if there are too many."""
    if pdfium_raw.FPDFPage_CountObjects(page) > _MAX_OBJECTS:
        return []
    paths, left = [], _MAX_SEGMENTS
    fill, stroke = c_int(), c_int()
    for path in page.get_objects(filter=[pdfium_raw.FPDF_PAGEOBJ_PATH], max_depth=1):
        left -= pdfium_raw.FPDFPath_CountSegments(path)
        if left < 0:
            return []
        pdfium_raw.FPDFPath_GetDrawMode(path, byref(fill), byref(stroke))
        if fill.value or stroke.value:
            paths.append(path)
    return paths


def _segments(drawn: pdfium.PdfObject) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The straight parts of a path."""
    matrix = drawn.get_matrix()
    begun = None
    points: list[tuple[float, float]] = []
    x, y = c_float(), c_float()
    for number in range(pdfium_raw.FPDFPath_CountSegments(drawn)):
        segment = pdfium_raw.FPDFPath_GetPathSegment(drawn, number)
        kind = pdfium_raw.FPDFPathSegment_GetType(segment)
        pdfium_raw.FPDFPathSegment_GetPoint(segment, byref(x), byref(y))
        point = matrix.on_point(x.value, y.value)
        if kind == pdfium_raw.FPDF_SEGMENT_LINETO:
            points.append(point)
        else:  # a curve ends the line, too
            yield from pairwise(points)
            points = [point]
            begun = point if kind == pdfium_raw.FPDF_SEGMENT_MOVETO else begun
        if begun is not None and pdfium_raw.FPDFPathSegment_GetClose(segment):
            points.append(begun)
    yield from pairwise(points)
