"""Rows of a sheet as they are shown: with the cells that span them, without hidden rows and columns."""

from bisect import bisect_left
from collections.abc import Collection, Iterator

from ingest.parse.omissions import Omissions
from ingest.parse.spans import Cell, Columns
from ragkv.errors import TooLarge

MAX_CELLS = 8_000_000


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
        self._count(len(items))
        for column in self._hidden[: bisect_left(self._hidden, len(items))]:
            self._hide_column(items, column)
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

    def _hide_column(self, items: list[str | Cell], column: int) -> None:
        """Take a cell out of its row, or move it to the next of the columns that it spans."""
        item = items[column]
        items[column] = ""
        if isinstance(item, Cell) and item.columns > 1 and column + 1 < len(items):
            items[column + 1] = Cell(item.words, item.rows, item.columns - 1)
        else:
            self._hide(item)

    def _count(self, num_cells: int) -> None:
        self._num_cells += num_cells
        if self._num_cells > MAX_CELLS:
            raise TooLarge(f"a sheet has more than {MAX_CELLS:,} cells: split it or save its sheets as CSV")
