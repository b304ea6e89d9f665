"""Table grids in a PDF, from the ruled lines of a page: those that are closed on all sides."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_float, c_int
from itertools import chain, groupby, pairwise, product
from statistics import median_high, median_low
from types import MappingProxyType
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.pdf_letters import Box, Point, Turn
from ingest.parse.pdf_objects import MAX_OBJECTS, PATH, Drawn

TOLERANCE = 3.0
"""Points between lines that are one, and between lines that meet."""
_MAX_SEGMENTS, _MAX_PAIRS = 6_000, 20_000
"""Limits of one page: on one with more no table is looked for."""
_SHORTEST = 6.0
_LEAST_ROWS, _LEAST_COLUMNS = 3, 2


class Line(NamedTuple):
    """A line at a height, or at a distance from the left, and from where to where it reaches."""

    at: float
    start: float
    end: float


Place = tuple[int, int]
"""(row from the top, column) of a cell."""


class Grid(NamedTuple):
    """Places of the lines of a table, ascending. `merged` are the places that belong to a larger cell, each with the
    first place of that."""

    xs: list[float]
    ys: list[float]
    merged: Mapping[Place, Place] = MappingProxyType({})

    @property
    def box(self) -> Box:
        return Box(self.xs[0], self.ys[0], self.xs[-1], self.ys[-1])

    def cell(self, x: float, y: float) -> Place | None:
        """The first place of the cell in which a point lies."""
        if not (self.xs[0] <= x < self.xs[-1] and self.ys[0] <= y < self.ys[-1]):
            return None
        place = len(self.ys) - 1 - bisect_right(self.ys, y), bisect_right(self.xs, x) - 1
        return self.merged.get(place, place)

    def overlaps(self, other: "Grid") -> bool:
        axes = zip(self[:2], other[:2], strict=True)
        return all(axis[0] < another[-1] and another[0] < axis[-1] for axis, another in axes)


def closed_grids(across: list[Line], down: list[Line]) -> list[Grid]:
    """The grids of lines that meet and close each cell, which may be as large as several others."""
    if len(across) <= _LEAST_ROWS or len(down) <= _LEAST_COLUMNS or len(across) * len(down) > _MAX_PAIRS:
        return []
    return [grid for lines, columns in _connected(across, down) if (grid := _grid(lines, columns))]


def _grid(across: list[Line], down: list[Line]) -> Grid | None:
    """The grid of lines that meet, if there are enough and each of its cells is a rectangle."""
    if not (across and down):
        return None
    down = down + _sides(across, down)
    across = across + _sides(down, across)
    xs, ys = (sorted({line.at for line in lines}) for lines in (down, across))
    if len(ys) <= _LEAST_ROWS or len(xs) <= _LEAST_COLUMNS:
        return None
    above, left = _borders(across, xs)[::-1], [borders[::-1] for borders in _borders(down, ys)]
    if not all(map(all, (above[0], above[-1], left[0], left[-1]))):
        return None
    merged: dict[Place, Place] = {}
    sizes: Counter[Place] = Counter()
    for place in product(range(len(ys) - 1), range(len(xs) - 1)):
        row, column = place
        beside = [] if left[column][row] else [(row, column - 1)]
        over = [] if above[row][column] else [(row - 1, column)]
        cells = {merged.get(other, other) for other in beside + over} or {place}
        if len(cells) > 1:
            return None
        (merged[place],) = cells
        sizes[merged[place]] += 1
    ends = {begin: place for place, begin in merged.items()}
    if any((ends[n][0] - n[0] + 1) * (ends[n][1] - n[1] + 1) != size for n, size in sizes.items()):
        return None
    return Grid(xs, ys, {place: begin for place, begin in merged.items() if place != begin})


def _sides(lines: Sequence[Line], crossing: Sequence[Line]) -> list[Line]:
    """The sides of a table that has lines between its cells alone: where most of its lines end beyond the outermost of
    those that cross them."""
    places = [line.at for line in crossing]
    begin, end = min(line.start for line in crossing), max(line.end for line in crossing)
    left, right = median_low(line.start for line in lines), median_high(line.end for line in lines)
    is_open = left < min(places) - _SHORTEST, right > max(places) + _SHORTEST
    return [Line(at, begin, end) for at, is_side in zip((left, right), is_open, strict=True) if is_side]


def _borders(lines: Iterable[Line], ends: Sequence[float]) -> list[list[bool]]:
    """For each place of lines, whether one of them reaches from each end to the next."""
    return [
        [
            any(line.start <= start + TOLERANCE and line.end >= end - TOLERANCE for line in level)
            for start, end in pairwise(ends)
        ]
        for level in (list(group) for _, group in groupby(sorted(lines), key=lambda line: line.at))
    ]


def _connected(across: list[Line], down: list[Line]) -> Iterator[tuple[list[Line], list[Line]]]:
    """Lines that meet, directly or by way of others."""
    meets = {
        (kind, number): [
            (not kind, other)
            for other, candidate in enumerate(crossing)
            if line.start - TOLERANCE <= candidate.at <= line.end + TOLERANCE
            and candidate.start - TOLERANCE <= line.at <= candidate.end + TOLERANCE
        ]
        for kind, lines, crossing in ((True, across, down), (False, down, across))
        for number, line in enumerate(lines)
    }
    while meets:
        start, reached = meets.popitem()
        group, waiting = {start}, list(reached)
        while waiting:
            if (node := waiting.pop()) not in group:
                group.add(node)
                waiting += meets.pop(node, ())
        yield [across[n] for kind, n in group if kind], [down[n] for kind, n in group if not kind]


def ruled(objects: Sequence[Drawn], turn: Turn) -> tuple[list[Line], list[Line]]:
    """The lines across and down that the paths of the upright page draw, those in one line joined."""
    across: list[Line] = []
    down: list[Line] = []
    drawings = objects if len(objects) < MAX_OBJECTS else ()
    # Those that the page draws by itself, not by forms within it; none if there are too many.
    paths = [drawn.item for drawn in drawings if drawn.kind == PATH and not drawn.depth]
    if sum(map(pdfium_raw.FPDFPath_CountSegments, paths)) > _MAX_SEGMENTS:
        paths = []
    for start, end in chain.from_iterable(map(_segments, paths)):
        (x1, y1), (x2, y2) = turn.point(*start), turn.point(*end)
        if abs(x1 - x2) >= _SHORTEST and abs(y1 - y2) < 1:
            across.append(Line(y1, min(x1, x2), max(x1, x2)))
        elif abs(y1 - y2) >= _SHORTEST and abs(x1 - x2) < 1:
            down.append(Line(x1, min(y1, y2), max(y1, y2)))
    return _merged(across), _merged(down)


def _merged(lines: list[Line]) -> list[Line]:
    groups: list[list[Line]] = []
    for line in sorted(lines):
        if groups and line.at <= groups[-1][0].at + TOLERANCE:
            groups[-1].append(line)
        else:
            groups.append([line])
    merged: list[Line] = []
    for group in groups:
        at = group[0].at
        for start, end in sorted((line.start, line.end) for line in group):
            if merged and merged[-1].at == at and start <= merged[-1].end + TOLERANCE:
                merged[-1] = merged[-1]._replace(end=max(merged[-1].end, end))
            else:
                merged.append(Line(at, start, end))
    return merged


def _segments(path: pdfium_raw.FPDF_PAGEOBJECT) -> Iterator[tuple[Point, Point]]:
    """The straight parts of a path that is drawn."""
    fill, stroke = c_int(), c_int()
    pdfium_raw.FPDFPath_GetDrawMode(path, byref(fill), byref(stroke))
    if not (fill.value or stroke.value):
        return
    matrix = pdfium_raw.FS_MATRIX()
    pdfium_raw.FPDFPageObj_GetMatrix(path, byref(matrix))
    to_page = pdfium.PdfMatrix.from_raw(matrix)
    begun = None
    points: list[Point] = []
    x, y = c_float(), c_float()
    for number in range(pdfium_raw.FPDFPath_CountSegments(path)):
        segment = pdfium_raw.FPDFPath_GetPathSegment(path, number)
        kind = pdfium_raw.FPDFPathSegment_GetType(segment)
        pdfium_raw.FPDFPathSegment_GetPoint(segment, byref(x), byref(y))
        point = to_page.on_point(x.value, y.value)
        if kind == pdfium_raw.FPDF_SEGMENT_LINETO:
            points.append(point)
        else:  # a curve ends the line, too
            yield from pairwise(points)
            points = [point]
            begun = point if kind == pdfium_raw.FPDF_SEGMENT_MOVETO else begun
        if begun is not None and pdfium_raw.FPDFPathSegment_GetClose(segment):
            points.append(begun)
    yield from pairwise(points)
