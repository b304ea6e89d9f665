"""Flatten HTML tables to lines of text: one line per row, each cell after its column's label.

A renderer's aligned columns cost a token for every few blanks and interleave the lines of neighbouring cells; a row
on one line keeps together what belongs together.
"""

from collections.abc import Iterable
from itertools import chain, groupby
from operator import itemgetter

from lxml.etree import Element, _Element, iterwalk

from ingest.parse.rows import LOOKAHEAD, is_header, labels_of, line_of
from ingest.parse.spans import Cell, Columns, header_of, num_headers, span_of, words_of

_LAYOUT = ("table", "h1", "h2", "h3", "h4", "h5", "h6", "pre")
_CELLS = ("td", "th")
_MAX_CELL_CHARS = 2_000
_LEAST_ROWS, _LEAST_COLUMNS = 3, 3


def flatten_tables(tree: _Element) -> None:
    """Replace each table by blocks. Cells with tables, headings or long text are page layout: they become separate
    blocks, one after the other."""
    for table in list(tree.iter("table")):
        bodies = [table, *(child for child in table if child.tag in ("thead", "tbody", "tfoot"))]
        _flatten_rows([child for body in bodies for child in body if child.tag == "tr"])
        for body in bodies[1:]:
            body.tag = "div"
        rows = Element("div")  # a figure's blank lines before and after it would go to its children but for this block
        rows.text, table.text = table.text, None
        rows.extend(list(table))
        table.append(rows)
        table.tag = "figure"


def _flatten_rows(rows: Iterable[_Element]) -> None:
    lines: list[tuple[_Element, list[str], bool]] = []
    columns = Columns()
    for row in rows:
        cells = [cell for cell in row if cell.tag in _CELLS]
        row.tag = "div"
        is_layout = any(next(cell.iter(*_LAYOUT), None) is not None for cell in cells)
        is_layout = is_layout or any(sum(map(len, cell.itertext())) > _MAX_CELL_CHARS for cell in cells)
        beside = ((child.tail, *(() if child.tag in _CELLS else child.itertext())) for child in row)
        if is_layout or any(words and words.strip() for words in chain([row.text], *beside)):
            columns.place(_cell(cell, "") for cell in cells)
            for cell in cells:
                cell.tag = "div"
        else:
            places = columns.place(_cell(cell, _cell_text(cell)) for cell in cells)
            lines.append((row, places, bool(cells) and all(cell.tag == "th" for cell in cells)))
    start = [places for _, places, _ in lines[:LOOKAHEAD]]
    is_marked = any(is_head for _, _, is_head in lines)
    starts_with_head = is_marked and lines[0][2]
    for index in range(num_headers(start) if starts_with_head else 0 if is_marked else _num_headers(start)):
        lines[index] = (*lines[index][:2], True)
    _write(lines)


def _write(lines: Iterable[tuple[_Element, list[str], bool]]) -> None:
    """The words of each row as its text, after the labels of the last rows of headers above it."""
    labels: list[str] = []
    for is_head, group in groupby(lines, key=itemgetter(2)):
        rows = [(row, places, words_of(places)) for row, places, _ in group]
        if is_head and any(sum(map(bool, words)) > 1 for _, _, words in rows):
            labels = labels_of(header_of([places for _, places, _ in rows]))
        for row, _, words in rows:
            for child in list(row):
                row.remove(child)
            row.text = line_of(words, () if is_head else labels) or None
            if labels and not is_head and row.text:
                row.tag = "p"  # a paragraph is not cut where a chunk may end after it


def _cell(cell: _Element, words: str) -> Cell:
    return Cell(words, span_of(cell, "rowspan"), span_of(cell, "colspan"))


def _num_headers(rows: list[list[str]]) -> int:
    """Number of rows at the top that label the others though nothing marks them: in even tables alone, as layout seldom
    is."""
    widths = {len(row) for row in rows}
    if len(rows) < _LEAST_ROWS or len(widths) > 1 or min(widths) < _LEAST_COLUMNS:
        return 0
    number = num_headers(rows)
    return number if is_header(header_of(rows[:number]), [words_of(row) for row in rows[number:]]) else 0


def _cell_text(cell: _Element) -> str:
    """The words of a cell on one line; blocks and line breaks in it become spaces, inline markup does not."""
    if not len(cell):
        return " ".join((cell.text or "").split())
    words: list[str] = []
    for event, element in iterwalk(cell, events=("start", "end")):
        words.append(" ")
        if event == "start":
            words.append(element.text or "")
        elif element is not cell:
            words.append(element.tail or "")
    return " ".join("".join(words).split())
