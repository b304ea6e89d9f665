"""Flatten HTML tables to lines of text: one line per row, each cell after its column's label.

A renderer's aligned columns cost a token for every few blanks and interleave the lines of neighbouring cells; a row
on one line keeps together what belongs together.
"""

from collections.abc import Iterable
from itertools import chain

from lxml.etree import Element, _Element, iterwalk

from ingest.parse.rows import is_header, labels_of, line_of

_LAYOUT = ("table", "h1", "h2", "h3", "h4", "h5", "h6", "pre")
_CELLS = ("td", "th")
_MAX_CELL_CHARS = 2_000
_MAX_SPAN = 40
_LOOKAHEAD, _LEAST_ROWS, _LEAST_COLUMNS = 20, 3, 3


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
    taken: dict[int, int] = {}
    for row in rows:
        cells = [cell for cell in row if cell.tag in _CELLS]
        row.tag = "div"
        if _is_layout(cells) or _has_words_between(row):
            for cell in cells:
                cell.tag = "div"
        else:
            lines.append((row, _in_columns(cells, taken), bool(cells) and all(cell.tag == "th" for cell in cells)))
    if not any(is_head for _, _, is_head in lines) and _is_headed([words for _, words, _ in lines[:_LOOKAHEAD]]):
        lines[0] = (*lines[0][:2], True)
    _write(lines)


def _write(lines: Iterable[tuple[_Element, list[str], bool]]) -> None:
    """The words of each row as its text, after the labels of the last row of headers above it."""
    labels: list[str] = []
    for row, words, is_head in lines:
        is_labelled = bool(labels) and not is_head
        if is_head and sum(map(bool, words)) > 1:
            labels = labels_of(words)
        for child in list(row):
            row.remove(child)
        row.text = line_of(words, labels if is_labelled else ()) or None
        if is_labelled and row.text:
            row.tag = "p"  # a paragraph is not cut where a chunk may end after it


def _is_layout(cells: list[_Element]) -> bool:
    has_blocks = any(next(cell.iter(*_LAYOUT), None) is not None for cell in cells)
    return has_blocks or any(sum(map(len, cell.itertext())) > _MAX_CELL_CHARS for cell in cells)


def _has_words_between(row: _Element) -> bool:
    """Whether words of a row stand in none of its cells."""
    inside = ((child.tail, *(() if child.tag in _CELLS else child.itertext())) for child in row)
    return any(words and words.strip() for words in chain([row.text], *inside))


def _in_columns(cells: Iterable[_Element], taken: dict[int, int]) -> list[str]:
    """The words of a row's cells in their columns. `taken` counts for each column the rows that a cell above spans."""
    words: list[str] = []

    def skip_taken() -> None:
        while taken.get(len(words), 0):
            taken[len(words)] -= 1
            words.append("")

    for cell in cells:
        skip_taken()
        below, width = _span(cell, "rowspan") - 1, _span(cell, "colspan")
        if below:
            taken.update(dict.fromkeys(range(len(words), len(words) + width), below))
        words += [_cell_text(cell), *[""] * (width - 1)]
    skip_taken()
    return words


def _span(cell: _Element, name: str) -> int:
    number = cell.get(name, "1")
    return min(int(number), _MAX_SPAN) if number.isdecimal() and len(number) < 6 else 1  # noqa: PLR2004 - digits


def _is_headed(rows: list[list[str]]) -> bool:
    """Whether the first row labels the others though nothing marks it: in even tables alone, as layout seldom is."""
    widths = {len(row) for row in rows}
    return (
        len(rows) >= _LEAST_ROWS and len(widths) == 1 and min(widths) >= _LEAST_COLUMNS and is_header(rows[0], rows[1:])
    )


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
