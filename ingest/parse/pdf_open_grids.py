"""Table grids in a PDF with horizontal lines only, as in papers and reports, or without lines, as in printed
spreadsheets.

Columns are parted by what stays white from the first row to the last. Of lines across, the first two are above and
below the header, the last is the table's end; rows lie between lines, or are the table's lines of text. A table without
lines has three columns, one of them of numbers: other words side by side are more often prose in columns.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from statistics import median

from ingest.parse.pdf_grids import TOLERANCE, Grid, Line
from ingest.parse.pdf_letters import Box, Letter
from ingest.parse.rows import is_label

_LEAST_LINES, _LEAST_COLUMNS, _LEAST_ROWS = 3, 2, 2
_MAX_LINES, _MAX_LETTERS = 200, 20_000
"""Limits of one page: on one with more no table is looked for."""
_MAX_TRIED = 4
"""Lines more than the least within which a table's first two rows end."""
_MAX_HEADER_LINES = 4
_WHITE = 0.7
"""Least width of the white between two columns, in heights of a line: wider than between two words."""
_MAX_CELL = 120
"""Letters of a cell, in the mean over a table: prose in columns has more."""

_PADDING, _APART = 1.5, 0.5
"""Heights of a line at most between a rule and the words beside it, and between two lines of a cell."""
_LEAST_UNRULED_COLUMNS, _LEAST_UNRULED_ROWS = 3, 4
_FAR = 2.0
"""Between two rows, in heights of a line: where a table without lines ends."""


def open_grids(
    across: Sequence[Line], down: Sequence[Line], letters: Sequence[Box], closed: Sequence[Grid]
) -> Iterator[Grid]:
    """The grids of lines that begin and end at the same places, of a table each. Where lines down are, there is none,
    nor does one begin within a grid that is closed."""

    def ends(line: Line) -> tuple[int, int]:
        return round(line.start / TOLERANCE), round(line.end / TOLERANCE)

    ordered = sorted(across, key=lambda line: (*ends(line), -line.at)) if len(letters) <= _MAX_LETTERS else []
    for _, level in groupby(ordered, key=ends):  # those of one width, from the top down
        lines, begin = list(level), 0
        while begin + _LEAST_LINES <= len(lines) <= _MAX_LINES:
            middle, below = (lines[begin].start + lines[begin].end) / 2, lines[begin].at - TOLERANCE
            if any(grid.cell(middle, below) for grid in closed):
                begin += 1
                continue
            candidates = _from_header(lines, begin, down, letters)
            last, grid = _longest(candidates, down, letters)
            if grid is not None:
                yield _to_last_row(grid, candidates[:last], letters)
                last -= len(candidates) - len(lines[begin:])
            begin += last


def unruled_grids(letters: Sequence[Letter]) -> Iterator[Grid]:
    """The grids of tables without lines."""
    rows = _rows([letter.box for letter in letters]) if len(letters) <= _MAX_LETTERS else []
    characters = {letter.box: letter.character for letter in letters}
    begin = 0
    while begin < len(rows):
        last = _end_of_table(rows, begin)
        begin, table = last, rows[begin:last]
        if len(table) < _LEAST_UNRULED_ROWS:
            continue
        boxes = [box for row in table for box in row]
        white = _white(boxes)
        cells = [[""] * (len(white) + 1) for _ in table]
        for row, words in zip(table, cells, strict=True):
            for box in sorted(row):
                words[bisect(white, box.left)] += characters[box]
        if any(_are_numbers(*column) for column in zip(*cells, strict=True)):
            xs = [min(box.left for box in boxes) - 1, *white, max(box.right for box in boxes) + 1]
            top, bottom = max(box.top for box in table[0]), min(box.bottom for box in table[-1])
            yield Grid(xs, sorted([top, bottom, *map(_parting, table, table[1:])]))


def _are_numbers(label: str, *cells: str) -> bool:
    """Whether a column's cells are numbers, half of whose characters are digits, below a label without a digit or a
    year above other numbers."""
    is_year = label.isdecimal() and is_label(label) and not all(map(is_label, cells))
    is_named = is_year or (label and not any(map(str.isdigit, label)))
    return bool(is_named) and all(cell and 2 * sum(map(str.isdigit, cell)) >= len(cell) for cell in cells)


def continued_grid(letters: Sequence[Letter], xs: Sequence[float], height: float) -> Grid | None:
    """The grid of rows from the page's top on that stand in the columns of a table; they are at most so high."""
    rows = _rows([letter.box for letter in letters]) if len(letters) <= _MAX_LETTERS else []
    table: list[list[Box]] = []
    for row in rows:
        columns = {(bisect(xs, box.left), bisect(xs, box.right)) for box in row}
        is_far = table and table[-1][0].middle - row[0].middle > height
        if is_far or columns == {(1, 1)} or not all(0 < left == right < len(xs) for left, right in columns):
            break
        table.append(row)
    if not table:
        return None
    top, bottom = max(box.top for box in table[0]), min(box.bottom for box in table[-1])
    return Grid(list(xs), sorted([top, bottom, *_between(table, [], xs)]))


def _end_of_table(rows: Sequence[Sequence[Box]], begin: int) -> int:
    """The row at which a table ends that begins with `begin`; the next one if none begins there."""
    boxes = list(rows[begin])
    columns, height = len(_white(boxes)) + 1, boxes[0].top - boxes[0].bottom
    most = min(len(rows), begin + _MAX_LINES)
    for end in range(begin + 1, most):
        # With more rows the stripes of white only narrow: a row that closes one, or adds one beside, ends the table.
        boxes += rows[end]
        is_far = rows[end - 1][0].middle - rows[end][0].middle > _FAR * height
        if end == begin + 1 and columns > 1 and min(_white(boxes), default=0) < min(rows[begin]).left:
            columns += 1  # that of the rows' names, below an empty corner
        if columns < _LEAST_UNRULED_COLUMNS or is_far or len(_white(boxes)) + 1 != columns:
            return end
    return most


def _from_header(lines: Sequence[Line], begin: int, down: Sequence[Line], letters: Sequence[Box]) -> list[Line]:
    """The lines from `begin` on, with one above the header where the first of them lies below it; none where the header
    is in doubt."""
    start, *_ = below = list(lines[begin:])
    left, right = start.start - TOLERANCE, start.end + TOLERANCE
    ends = below[_LEAST_LINES - 1 : _LEAST_LINES + _MAX_TRIED]
    high = start.at + _MAX_HEADER_LINES * (start.at - ends[0].at)
    near = [box for box in letters if box.top > ends[-1].at and box.bottom < high]
    level = [box for box in near if left <= box.left and box.right <= right]
    body: list[Box] = []
    for line in ends:  # as many as have columns
        inside = [box for box in level if line.at < box.middle < start.at]
        if not inside or not _white(inside):
            break
        body = inside
    header = _beside(body, [box for box in near if box.middle > start.at], start.at, left, right) if body else []
    xs = [left, *_white([*body, *header]), right] if header else []
    labelled = {bisect(xs, box.left) for box in header}
    if len(labelled) < _LEAST_COLUMNS:
        return below
    top, bottom = max(box.top for box in header), min(box.bottom for box in body)
    is_row = begin > 0 and lines[begin - 1].at - top <= _PADDING * header[0].height
    is_shaded = any(left <= line.at <= right and bottom < line.end <= start.at for line in down)
    is_header = labelled.issuperset(range(2, len(xs))) and not is_row and not is_shaded
    return [start._replace(at=top), *below] if is_header else []


def _to_last_row(grid: Grid, lines: Sequence[Line], letters: Sequence[Box]) -> Grid:
    """The grid, with a row more where lines part its rows and none lies below the last one."""
    left, right, bottom = grid.xs[0], grid.xs[-1], grid.ys[0]
    if len(grid.ys) != len(lines):
        return grid
    inside = (box for box in letters if left <= box.left and box.right <= right)
    body = [box for box in inside if bottom < box.middle < grid.ys[-1]]
    low = bottom - (grid.ys[-1] - bottom)
    row = _beside(body, [box for box in letters if low < box.bottom and box.middle < bottom], bottom, left, right)
    filled = len({bisect(grid.xs, box.left) for box in row})
    is_row = filled >= _LEAST_COLUMNS and 2 * filled >= len(grid.xs) - 1
    return grid._replace(ys=[min(box.bottom for box in row), *grid.ys]) if is_row else grid


def _beside(body: Sequence[Box], letters: Iterable[Box], edge: float, left: float, right: float) -> list[Box]:
    """The letters of one row in the columns of a table's body, from the letters above or below a line at `edge`."""
    white, height = _white(body), body[0].height
    near = [box for box in letters if left - height < box.right and box.left < right + height]
    row: list[Box] = []
    for line in sorted(_rows(near), key=lambda line: abs(line[0].middle - edge)):
        ends = min(box.bottom for box in line), max(box.top for box in line)
        begin, end = sorted(ends, key=lambda end: abs(end - edge))
        is_far = abs(begin - edge) > line[0].height * (_APART if row else _PADDING)
        # A line of prose above the header goes on beside the table, or ends in its first column.
        is_short = bool(row) and end > edge and all(box.right < white[0] for box in line)
        is_prose = is_short or not all(left <= box.left and box.right <= right for box in line)
        if is_far or is_prose or len(_white([*body, *row, *line])) != len(white):
            break
        row, edge = row + line, end
    return row


def _longest(lines: Sequence[Line], down: Sequence[Line], letters: Sequence[Box]) -> tuple[int, Grid | None]:
    """The grid from the first line on that has the most lines, and the number of lines that it takes; 1 without one."""
    # From the least number of lines on, each time with one line more at the bottom. The first grid settles how many
    # columns the table has; a grid with another number has taken in lines of the next table.
    longest, columns = None, None
    for end in range(_LEAST_LINES, len(lines) + 1):
        grid = _grid(lines[:end], down, letters)
        if grid is not None and columns in {None, len(grid.xs)}:
            longest, columns = (end, grid), len(grid.xs)
        elif longest or end >= _LEAST_LINES + _MAX_TRIED:
            break
    return longest or (1, None)


def _grid(lines: Sequence[Line], down: Sequence[Line], letters: Sequence[Box]) -> Grid | None:
    """The grid of lines from the top down, all of one table."""
    top, below_header, bottom = lines[0].at, lines[1].at, lines[-1].at
    left, right = lines[0].start - TOLERANCE, lines[0].end + TOLERANCE
    # A line down across others: the table is ruled, and closed_grids has it. Sides of shaded rows cross none.
    inner = [line.at for line in lines[1:-1]]
    if any(
        left <= line.at <= right and any(line.start < at - TOLERANCE and line.end > at + TOLERANCE for at in inner)
        for line in down
    ):
        return None
    inside = [box for box in letters if bottom < box.middle < top and left <= box.left and box.right <= right]
    header, body = ([box for box in inside if (box.middle > below_header) is above] for above in (True, False))
    rows = _rows(body)
    if len(rows) < _LEAST_ROWS or not 1 <= len(_rows(header)) <= _MAX_HEADER_LINES:
        return None
    xs = [left, *_white(inside), right]
    # Column i lies between xs[i - 1] and xs[i]. The header must label all but the first.
    labelled = {bisect(xs, box.left) for box in header}
    # A label above several columns crosses the white between them, or leaves one of them without.
    if len(xs) <= _LEAST_COLUMNS or len(xs) != len(_white(body)) + 2 or not labelled.issuperset(range(2, len(xs))):
        return None
    # Prose in columns has as much white, but more letters a cell.
    if len(inside) > _MAX_CELL * (len(rows) + 1) * (len(xs) - 1):
        return None
    return Grid(xs, sorted([top, below_header, *_between(rows, [line.at for line in lines[1:]], xs), bottom]))


def _between(rows: Sequence[Sequence[Box]], lines: Sequence[float], xs: Sequence[float]) -> Iterator[float]:
    """Boundaries between rows of the table: at the lines if most of them part single lines of text, else at
    each line of text that does not go on with the one above."""
    bands = [[row for row in rows if low < row[0].middle < high] for high, low in pairwise(lines)]
    if len(bands) >= _LEAST_ROWS and 2 * sum(len(band) <= 1 for band in bands) >= len(bands):
        yield from lines[1:-1]
        return
    # A row begins where its first column is filled, or half of all; fewer columns are a cell that goes on.
    for above, row in pairwise(rows):
        filled = {bisect(xs, box.left) for box in row}
        if 1 in filled or 2 * len(filled) >= len(xs) - 1:
            yield _parting(above, row)


def _parting(above: Sequence[Box], row: Sequence[Box]) -> float:
    """Half way between two lines of text."""
    return (min(box.bottom for box in above) + max(box.top for box in row)) / 2


def _rows(letters: Sequence[Box]) -> list[list[Box]]:
    """Lines of text, from the top down."""
    rows: list[list[Box]] = []
    level = (list(boxes) for _, boxes in groupby(letters, key=itemgetter(1, 3)))  # most of a line is
    for boxes in sorted(level, key=lambda boxes: -boxes[0].middle):
        if rows and boxes[0].top > rows[-1][0].middle:
            rows[-1] += boxes
        else:
            rows.append(boxes)
    return rows


def _white(letters: Sequence[Box]) -> list[float]:
    """The middles of the stripes between columns, ascending."""
    least = _WHITE * median(box.top - box.bottom for box in letters)
    # From left to right over the letters of all rows at once: white begins where the furthest of them ends.
    stripes, reached = [], None
    for box in sorted(letters):
        if reached is not None and box.left - reached >= least:
            stripes.append((reached + box.left) / 2)
        reached = box.right if reached is None else max(reached, box.right)
    return stripes
