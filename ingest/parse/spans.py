"""Cells that span rows and columns, placed in the columns of their table, and rows of headers joined to one.

A reader gives each row of a table to `Columns`: to `lay` where the row has an item for every column (sheets, slides),
to `place` where it lists its cells alone (HTML). The rows that come back go to `Composer.table`, which joins rows of
headers (`join_headers`): `composer.table(columns.lay(row) for row in rows)`. `Grid` does so for sheets, without their
hidden rows and columns.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from lxml.etree import _Element

from ingest.parse.parsed import Omissions
from ingest.parse.rows import is_label, shortened
from ragkv.errors import TooLarge

_MAX_SPAN = 20_000
_MAX_START = 200
_SPARE, _SPARE_PER_CELL = 100, 40
_MAX_HEADERS = 5
MAX_CELLS = 8_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a row. It stands in the column `start`, counted from 0, or in the next that is free."""

    words: str
    rows: int = 1
    columns: int = 1
    start: int = 0


class Beside(str):
    """Words of a cell in a column that it spans beside its first."""

    __slots__ = ()


class Below(str):
    """Words of a cell in its first column, in a row that it spans below its first."""

    __slots__ = ()


def span_of(cell: _Element, name: str, default: int = 1) -> int:
    """The number in an attribute of a cell, at most that of rows or columns that are taken for spanned."""
    number = cell.get(name, "")
    return min(int(number), _MAX_SPAN) if number.isdecimal() and len(number) < 6 else default  # noqa: PLR2004 - digits


def words_of(row: Iterable[str]) -> list[str]:
    """The words of a row by column, once for each cell."""
    return ["" if type(words) is Beside else words for words in row]


def header_of(rows: Iterable[Sequence[str]]) -> list[str]:
    """One header for rows of headers that stand one above the other: for each column the words above it, from the top,
    without titles."""
    return _joined([row for row in rows if not is_title(row)])


def is_title(row: Sequence[str]) -> bool:
    """Whether a row is one cell with words, which stands in one column or in all."""
    return _num_cells(row) == 1 and sum(map(bool, row)) in (1, len(row))


def join_headers(rows: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """The words of each row; where a table begins with a row of cells that span columns, and rows below name the
    columns one by one, all of them joined. Rows without words stand between tables; those that have nothing but words
    of cells above are left out."""
    for has_words, table in groupby(rows, key=any):
        if has_words:
            below = (Below, Beside)
            yield from _join_header(row for row in table if any(cell and type(cell) not in below for cell in row))
        else:
            yield []


def num_headers(rows: Sequence[Sequence[str]]) -> int:
    """Number of rows, of those at the top, that are one header: more than one where cells that span columns stand
    above the names of these."""
    number = 1
    while number < min(len(rows), _MAX_HEADERS) and _names_columns(rows[number], rows[:number]):
        number += 1
    return number


def _join_header(table: Iterator[Sequence[str]]) -> Iterator[list[str]]:
    """The rows of one table, from its titles on."""
    start: list[Sequence[str]] = []
    for row in table:
        start.append(row)
        if num_headers(start) == len(start):
            continue
        is_below_title = _num_cells(start[0]) == 1
        yield _once(start[:-1])
        start = start[-1:]
        if not is_below_title:
            break
    if start:
        yield _once(start)
    yield from map(words_of, table)


def _joined(rows: Sequence[Sequence[str]]) -> list[str]:
    if len(rows) == 1:
        return words_of(rows[0])
    return [" ".join(dict.fromkeys(filter(None, column))) for column in zip_longest(*rows, fillvalue="")]


def _once(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows joined, with the words of a cell that spans columns in the lowest in its first alone."""
    return [
        "" if type(lowest) is Beside else words for words, lowest in zip_longest(_joined(rows), rows[-1], fillvalue="")
    ]


def _names_columns(row: Sequence[str], above: Sequence[Sequence[str]]) -> bool:
    """Whether a row names the columns below cells that span several, and all others are named above it."""
    spans: dict[int, int] = {}  # the columns of cells that span several, with the first column of each cell
    start = 0
    for column, words in enumerate(above[-1]):
        if type(words) is not Beside:
            start = column
        elif words:
            spans[start] = spans[column] = start
    own = [column for column, words in enumerate(row) if words and type(words) not in (Below, Beside)]
    below = {span for column in own if (span := spans.get(column)) is not None}
    are_split = any(sum(spans.get(column) == span for column in own) > 1 for span in below)
    is_below_title = _num_cells(above[-1]) == 1 and set(own) <= set(spans)
    return (
        are_split
        and not is_below_title
        and all(is_label(row[column]) for column in own)
        and not any(
            column < len(header) and header[column] for column in own if column not in spans for header in above
        )
    )


def _num_cells(row: Sequence[str]) -> int:
    return sum(bool(words) and type(words) is not Beside for words in row)


class Columns:
    """The columns of a table, whose rows are placed one after the other, from the top.

    A row comes back as the words in each column: those of a cell that spans several are `Beside` in all but the first,
    and `Below` in the rows under its own, cut to the length of a label, as they are repeated. What spans add to a
    table is bounded by the number of its cells.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, str]] = {}
        self._spare = _SPARE

    def place(self, cells: Iterable[Cell]) -> list[str]:
        """The next row, from its cells."""
        row: list[str] = []
        for cell in cells:
            self._continue(row)
            while len(row) < min(cell.start, _MAX_START):
                row.append("")
                self._continue(row)
            self._put(row, cell)
        return self._ended(row)

    def lay(self, items: Sequence[str | Cell]) -> list[str]:
        """The next row, from an item for each column: words, or a cell that spans columns or rows (its `start` is not
        used). Items in places that another cell covers are left out."""
        if not self._open and Cell not in map(type, items):
            return [str(item) for item in items]
        row: list[str] = []
        for column, item in enumerate(items):
            self._continue(row)
            if column >= len(row):
                self._put(row, item if isinstance(item, Cell) else Cell(item))
        return self._ended(row)

    @property
    def is_open(self) -> bool:
        """Whether cells of the rows so far span the next one."""
        return bool(self._open)

    def _put(self, row: list[str], cell: Cell) -> None:
        self._spare += _SPARE_PER_CELL
        width = max(1, min(cell.columns, self._spare))
        self._spare -= width
        label = shortened(cell.words) if cell.rows > 1 else ""
        for number in range(width):
            self._open.pop(len(row), None)
            if cell.rows > 1:
                self._open[len(row)] = cell.rows - 1, Beside(label) if number else Below(label)
            row.append(Beside(cell.words) if number else cell.words)

    def _ended(self, row: list[str]) -> list[str]:
        last = max(self._open, default=-1)
        while len(row) <= last:
            self._continue(row)
            if len(row) < last:
                row.append("")
        return row

    def _continue(self, row: list[str]) -> None:
        """Add the columns of cells above that span the row."""
        while cell := self._open.pop(len(row), None):
            rows, words = cell
            self._spare -= 1
            if rows > 1 and self._spare > 0:
                self._open[len(row)] = rows - 1, words
            row.append(words)


class Grid:
    """The rows of one sheet, from the top. hidden_columns: numbers, counted from 0. is_hidden: the whole sheet is."""

    def __init__(self, omissions: Omissions, hidden_columns: Collection[int] = (), *, is_hidden: bool = False) -> None:
        self._omissions = omissions
        self._columns = Columns()
        self._hidden = [] if omissions.keeps_hidden else sorted(hidden_columns)
        self._is_hidden = is_hidden
        self._num_cells = 0

    def row(self, items: list[str | Cell], *, is_hidden: bool = False) -> Iterator[list[str]]:
        """The row, unless it is hidden, from an item for each column. Words that are not shown are counted; a cell that
        spans a hidden row and others is shown in these."""
        self._num_cells += len(items)
        if self._num_cells > MAX_CELLS:
            raise TooLarge(f"a sheet has more than {MAX_CELLS:,} cells: split it or save its sheets as CSV")
        for column in self._hidden[: bisect_left(self._hidden, len(items))]:
            item, items[column] = items[column], ""
            if isinstance(item, Cell) and item.columns > 1 and column + 1 < len(items):
                items[column + 1] = Cell(item.words, item.rows, item.columns - 1)  # shown in the next that it spans
            else:
                self._hide(item)
        if self._omissions.keeps_hidden or not (is_hidden or self._is_hidden):
            yield self._columns.lay(items)
            return
        for column, item in enumerate(items):
            if self._is_hidden or not (isinstance(item, Cell) and item.rows > 1):
                self._hide(item)
                items[column] = ""
        self._columns.lay(items)

    def skip(self, num_rows: int) -> Iterator[list[str]]:
        """Rows without cells."""
        while num_rows > 0 and self._columns.is_open:
            yield self._columns.lay([])
            num_rows -= 1
        if num_rows > 0:
            yield []

    def _hide(self, item: str | Cell) -> None:
        if item:
            self._omissions.hidden(item.words if isinstance(item, Cell) else item)
