"""Tables on PDF pages: rows with labels, from page to page.

A table is a grid (`pdf_grids`, `pdf_open_grids`) with a first row that labels the others, or one that goes on from the
page before with the labels of that. What is none for sure stays the words that it is: wrong rows are worse than words.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

from ingest.parse.pdf_grids import TOLERANCE, Grid, Line, closed_grids
from ingest.parse.pdf_letters import HYPHEN, Letter, Segment, put_in, segments_of, text_of
from ingest.parse.pdf_open_grids import continued_grid, open_grids, unruled_grids
from ingest.parse.rows import SEPARATOR, is_header, labels_of

_LEAST_FILLED = 0.5
_HIGHER = 1.5
"""Rows of a table's next page are at most so much higher than its highest before."""

Row = list[list[Letter]]
"""The letters of each cell."""
Cells = list[Row]


@dataclass(frozen=True, slots=True)
class Labels:
    """The header of a table that may go on with the next page. Columns of `numbers` have some in each of its rows."""

    header: Row
    xs: list[float]
    numbers: frozenset[int]
    row_height: float


def ruled_grids(across: list[Line], down: list[Line], letters: Sequence[Letter]) -> list[Grid]:
    """Grids of lines that do not overlap, from the surest kind to the least sure."""
    if not across:
        return []
    closed = _apart(closed_grids(across, down), [])
    return _apart(open_grids(across, down, [letter.box for letter in letters], tuple(closed)), closed)


def with_tables(
    letters: Sequence[Letter], grids: Sequence[Grid], earlier: Labels | None
) -> tuple[list[Segment], Labels | None]:
    """The letters as segments, with a table where the first of its letters was, and the labels of a table at the page's
    end. `earlier` are those of the page before."""
    following = _following(letters, grids, earlier) if earlier else None
    tables: list[Segment] = []
    labels: Labels | None = None
    inside: dict[int, int] = {}
    for grid in _apart(chain(filter(None, [following]), grids, unruled_grids(letters)), []):
        labels_above = earlier.header if earlier and grid is following else None
        header, rows = _headed(_cells(grid, letters), grid, labels_above)
        words = list(map(_texts, rows))
        is_filled = sum(map(bool, chain.from_iterable(words))) >= _LEAST_FILLED * len(rows) * len(header)
        is_headed = labels_above is not None or is_header(_texts(header), words)
        if rows and is_filled and is_headed:
            lines = _lines(header, rows, begins=labels_above is None)
            inside |= {id(letter): len(tables) for letter in letters if _place(grid, letter) is not None}
            tables.append(Segment(list(lines), grid.box, is_table=True))
            if not any(letter.box.middle < grid.ys[0] for letter in letters):
                unplaced = [[letter._replace(place=None) for letter in cell] for cell in header]
                height = max(above - below for below, above in pairwise(grid.ys))
                labels = earlier if labels_above else Labels(unplaced, grid.xs, _numbers(rows), height)
    return list(_segments(letters, tables, inside)), labels


def _apart(grids: Iterable[Grid], apart: list[Grid]) -> list[Grid]:
    for grid in grids:
        if not any(map(grid.overlaps, apart)):
            apart.append(grid)
    return apart


def _following(letters: Sequence[Letter], grids: Sequence[Grid], earlier: Labels) -> Grid | None:
    """The grid at the page's top in which a table goes on."""
    top = max(grids, key=lambda grid: grid.ys[-1], default=None)
    is_ruled = (
        top is not None
        and len(top.xs) == len(earlier.xs)
        and all(abs(x - other) <= TOLERANCE for x, other in zip(top.xs, earlier.xs, strict=True))
    )
    grid = top if is_ruled else continued_grid(letters, earlier.xs, _HIGHER * earlier.row_height)
    if grid is None or any(letter.box.middle > grid.ys[-1] for letter in letters):
        return None
    header, *rows = map(_texts, _cells(grid, letters))
    has_numbers = any(any(map(str.isdecimal, header[column])) for column in earlier.numbers)
    is_repeated = header == _texts(earlier.header)
    is_new = earlier.numbers and not has_numbers and is_header(header, rows) and not is_repeated
    is_stacked = any(row == 0 and column != place[1] for place, (row, column) in grid.merged.items())
    return None if is_new or is_stacked else grid


def _texts(row: Row) -> list[str]:
    return [text_of(cell) for cell in row]


def _headed(cells: Cells, grid: Grid, known: Row | None) -> tuple[Row, Cells]:
    """The header of a table and its rows. Labels above each other are joined, and a cell that spans rows stands in each
    of them. Both are empty where a row's cell spans columns, or where the header may end is in doubt."""
    if known and _texts(cells[0]) == _texts(known):
        return known, cells[1:]
    if not grid.merged:
        return (known, cells) if known else (cells[0], cells[1:])
    places = [[grid.merged.get((row, n), (row, n)) for n in range(len(cells[0]))] for row in range(len(cells))]
    spread = [[cells[row][column] for row, column in line] for line in places]
    depth = 0 if known else sum(any(row == 0 for row, _ in line) for line in places)
    if depth == 1:  # labels that span columns alone: those below them are no numbers above numbers
        depth = 2
        if not (numbers := _numbers(spread[depth:])) or numbers & _numbers(spread[1:depth]):
            return [], []
    if any(n != column for line in places[depth:] for n, (_, column) in enumerate(line)):
        return [], []
    stacks = (dict.fromkeys(column) for column in zip(*places[:depth], strict=True))
    header = [_stacked([cells[row][column] for row, column in stack]) for stack in stacks]
    return known or header, spread[depth:]


def _stacked(cells: Iterable[list[Letter]]) -> list[Letter]:
    """The words of cells as those of one."""
    letters: list[Letter] = []
    for cell in filter(None, cells):
        letters += cell if not letters else [cell[0]._replace(gap=" "), *cell[1:]]
    return letters


def _numbers(rows: Cells) -> frozenset[int]:
    """The columns that have a digit in each of the rows."""
    columns = zip(*rows, strict=True)
    return frozenset(n for n, column in enumerate(columns) if all(any(map(str.isdecimal, text_of(c))) for c in column))


def _place(grid: Grid, letter: Letter) -> tuple[int, int] | None:
    return grid.cell((letter.box.left + letter.box.right) / 2, letter.box.middle)


def _cells(grid: Grid, letters: Sequence[Letter]) -> Cells:
    """The letters of each cell, one space for all that lies between two of its words. PDFium tells hyphens at
    lines' ends only where the next line is of the same cell."""
    cells: Cells = [[[] for _ in grid.xs[1:]] for _ in grid.ys[1:]]
    preceding: Letter | None = None
    for letter in letters:
        if (place := _place(grid, letter)) is not None:
            cell = cells[place[0]][place[1]]
            follows = cell and cell[-1].box is preceding.box if preceding else False
            is_hyphen = len(cell) > 1 and cell[-1].character in "-\u2010" and not cell[-1].gap
            if is_hyphen and cell[-2].character.isalpha() and not letter.box.is_beside(cell[-1].box):
                cell[-1] = cell[-1]._replace(character=HYPHEN)
            cell.append(letter._replace(gap=" " if cell and (letter.gap or not follows) else ""))
        preceding = letter
    return cells


def _lines(header: Row, rows: Cells, *, begins: bool) -> Iterator[Letter]:
    """The table's text as `ingest.parse.rows.lines_of_table` writes it, a labelled row a paragraph."""
    texts = labels_of(_texts(header))
    ends = [list(accumulate(len(letter.gap) + 1 for letter in cell)) for cell in header]
    labels = [
        [letter for letter, end in zip(cell, ends_of_cell, strict=True) if end <= len(text)]
        for cell, ends_of_cell, text in zip(header, ends, texts, strict=True)
    ]
    gap = "\n\n"
    if begins:
        yield from _joined(header, gap)
    for row in filter(any, rows):
        labelled = [
            [*label, *put_in(":", cell[0].box), cell[0]._replace(gap=" "), *cell[1:]] if label and cell else cell
            for label, cell in zip(labels, row, strict=True)
        ]
        yield from _joined(labelled, gap)


def _joined(cells: Iterable[list[Letter]], gap: str) -> Iterator[Letter]:
    for cell in filter(None, cells):
        if gap == " ":
            yield from put_in(SEPARATOR, cell[0].box)
        yield from (cell[0]._replace(gap=gap), *cell[1:])
        gap = " "


def _segments(letters: Sequence[Letter], tables: Sequence[Segment], inside: dict[int, int]) -> Iterator[Segment]:
    if not tables:
        yield from segments_of(letters)
        return
    words: list[Letter] = []
    written: set[int] = set()
    follows = False
    for letter in letters:
        number = inside.get(id(letter))
        if number is None:
            words.append(letter._replace(gap=f"\n\n{letter.gap}") if follows else letter)
            follows = False
        elif number not in written:
            yield from segments_of(words)
            yield tables[number]
            words, follows = [], True
            written.add(number)
    yield from segments_of(words)
