"""Cells that span rows and columns, placed in the columns of their table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from lxml.etree import _Element

from ingest.parse.rows import shortened

_MAX_SPAN = 40
_MAX_START = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a row. It stands in the column `start`, counted from 0, or in the next that is free."""

    words: str
    rows: int = 1
    columns: int = 1
    start: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A column of a row: the words of its cell, and whether this is the first column that the cell stands in."""

    words: str = ""
    is_first: bool = True


def span_of(cell: _Element, name: str, default: int = 1) -> int:
    """The number in an attribute of a cell, at most that of rows or columns that are taken for spanned."""
    number = cell.get(name, "")
    return min(int(number), _MAX_SPAN) if number.isdecimal() and len(number) < 6 else default  # noqa: PLR2004 - digits


def words_of(places: Iterable[Place]) -> list[str]:
    """The words of a row by column, once for each cell."""
    return [place.words if place.is_first else "" for place in places]


def header_of(rows: Iterable[Sequence[Place]]) -> list[str]:
    """One header for rows of headers that stand one above the other: for each column the words above it, from the top,
    without titles."""
    stacked = [row for row in rows if not is_title(row)]
    if len(stacked) == 1:
        return words_of(stacked[0])
    headers = [[place.words for place in row] for row in stacked]
    return [" ".join(dict.fromkeys(filter(None, column))) for column in zip_longest(*headers, fillvalue="")]


def is_title(row: Sequence[Place]) -> bool:
    """Whether a row is one cell with words, which stands in one column or in all."""
    columns = [place.words for place in row if place.words]
    return sum(map(bool, words_of(row))) == 1 and len(columns) in (1, len(row))


class Columns:
    """The columns of a table, whose rows are placed one after the other, from the top."""

    def __init__(self) -> None:
        self._taken: dict[int, tuple[int, Place]] = {}

    def place(self, cells: Iterable[Cell]) -> list[Place]:
        """The columns of the next row. A cell that spans rows stands in each of them, with its words cut to the length
        of a label, as they are repeated."""
        places: list[Place] = []
        for cell in cells:
            self._add_taken(places)
            while len(places) < min(cell.start, _MAX_START):
                places.append(Place())
                self._add_taken(places)
            below, width = min(cell.rows, _MAX_SPAN) - 1, max(1, min(cell.columns, _MAX_SPAN))
            for number in range(width):
                self._taken.pop(len(places), None)
                if below > 0:
                    self._taken[len(places)] = below, Place(shortened(cell.words), number == 0)
                places.append(Place(cell.words, number == 0))
        last = max(self._taken, default=-1)
        while len(places) <= last:
            self._add_taken(places)
            if len(places) < last:
                places.append(Place())
        return places

    def _add_taken(self, places: list[Place]) -> None:
        while cell := self._taken.pop(len(places), None):
            rows, place = cell
            if rows > 1:
                self._taken[len(places)] = rows - 1, place
            places.append(place)
