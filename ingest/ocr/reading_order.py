"""The reading order of boxes on a page: columns one after the other, table rows across.

A page is cut where nothing stands: at a gutter between columns, else at the widest gap between rows (recursive XY-cut,
Nagy and Seth 1984). Tables have gutters too: there the boxes on both sides stand in the same rows and are short.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

_GUTTER = 1.0  # heights of a line that lie between columns
_PARAGRAPH = 0.9  # heights of a line that lie between paragraphs
_PROSE = 10.0  # heights of a line that a line of prose is wide
_MIN_LINES = 3


@dataclass(frozen=True, slots=True)
class Placed:
    """A box from (left, top) to (right, bottom) on an upright page; `index` tells which."""

    index: int
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


Row = list[Placed]


def blocks(placed: Sequence[Placed]) -> list[list[Row]]:
    """Paragraphs or columns in reading order, each as rows from above, each row from the left."""
    read: list[list[Row]] = []
    parts = [placed] if placed else []  # the next one last; by recursion, thousands of lines would nest as deep
    while parts:
        part = parts.pop()
        line = median(item.height for item in part)
        columns = _cut(part, lambda item: (item.left, item.right), _GUTTER * line)
        if _are_columns(columns, line):
            parts += reversed(columns)
            continue
        bands = _cut(part, lambda item: (item.top, item.bottom), _PARAGRAPH * line)
        if len(bands) > 1:
            parts += reversed(bands)
        else:
            read.append(_rows(part))
    return read


def _rows(placed: Sequence[Placed]) -> list[Row]:
    """Boxes side by side as rows."""
    rows: list[Row] = []
    for item in sorted(placed, key=lambda item: item.middle):
        if rows and abs(item.middle - rows[-1][0].middle) <= min(item.height, rows[-1][0].height) / 2:
            rows[-1].append(item)
        else:
            rows.append([item])
    return [sorted(row, key=lambda item: item.left) for row in rows]


def _cut(
    placed: Sequence[Placed], sides: Callable[[Placed], tuple[float, float]], at_least: float
) -> list[Sequence[Placed]]:
    """Two parts, to both sides of the widest gap of at least that width; one part if there is none."""
    ordered = sorted(placed, key=sides)
    best, at, end = at_least, 0, sides(ordered[0])[1]
    for number, (preceding, after) in enumerate(pairwise(ordered), start=1):
        end = max(end, sides(preceding)[1])
        if (gap := sides(after)[0] - end) >= best:
            best, at = gap, number
    return [ordered[:at], ordered[at:]] if at else [ordered]


def _are_columns(parts: Sequence[Sequence[Placed]], line: float) -> bool:
    """Whether each of two parts is read to its end before the other: lines of prose, or rows that do not match."""
    fewer, more = sorted((parts[0], parts[-1]), key=len)
    if len(parts) == 1 or len(fewer) < _MIN_LINES:
        return False
    if all(median(item.right - item.left for item in part) >= _PROSE * line for part in parts):
        return True
    matched = sum(any(abs(item.middle - other.middle) <= line / 4 for other in more) for item in fewer)
    return matched * 2 < len(fewer)
