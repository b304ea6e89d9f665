"""Flatten HTML tables to lines of text: one row a line, cells separated by bars.

A renderer's aligned columns cost a token for every few blanks and interleave the lines of neighbouring cells; a row
on one line keeps together what belongs together.
"""

from lxml.etree import Element, _Element, iterwalk

_SEPARATOR = " | "
_LAYOUT = ("table", "h1", "h2", "h3", "h4", "h5", "h6", "pre")
_MAX_CELL_CHARS = 2_000


def flatten_tables(tree: _Element) -> None:
    """Replace each table by blocks. Cells with tables, headings or long text are page layout: they become separate
    blocks, one after the other."""
    for table in list(tree.iter("table")):
        bodies = [table, *(child for child in table if child.tag in ("thead", "tbody", "tfoot"))]
        for row in [child for body in bodies for child in body if child.tag == "tr"]:
            _flatten_row(row)
        for body in bodies[1:]:
            body.tag = "div"
        rows = Element("div")  # a figure's blank lines before and after it would go to its children but for this block
        rows.text, table.text = table.text, None
        rows.extend(list(table))
        table.append(rows)
        table.tag = "figure"


def _flatten_row(row: _Element) -> None:
    cells = [cell for cell in row if cell.tag in ("td", "th")]
    row.tag = "div"
    has_blocks = any(next(cell.iter(*_LAYOUT), None) is not None for cell in cells)
    if has_blocks or any(sum(map(len, cell.itertext())) > _MAX_CELL_CHARS for cell in cells):
        for cell in cells:
            cell.tag = "div"
        return
    line = _SEPARATOR.join(_cell_text(cell) for cell in cells)
    for child in list(row):
        row.remove(child)
    row.text = line if line.strip(" |") else None


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
