"""Tables drawn as a grid of lines, as in reStructuredText, Pandoc and the output of databases."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ingest.parse.aligned import padded, stripped
from ingest.parse.spans import Cell, Columns, header_of, words_of
from ingest.parse.text_tables import table_text

_MAX_LINE_CHARS, _MAX_COLUMNS = 1_000, 100
_BORDER = re.compile(r"\+(?:[-=:]+\+)+")
_SEGMENT = re.compile(r"\+[-=:]+(?=\+)")
_RULED = re.compile(r"[-=:]+")
_DRAWN = str.maketrans(
    dict.fromkeys("─━┄┈╌", "-") | dict.fromkeys("═", "=") | dict.fromkeys("│┃║┆┊╎", "|")
    | dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╯╰╔╗╚╝╠╣╦╩╬╒╓╕╖╘╙╛╜╞╟╡╢╤╥╧╨╪╫┏┓┗┛┣┫┳┻╋┡┢┩┪╇┠┨┯┷┿┝┥┰┸╂", "+")
)  # fmt: skip


def read_grid(lines: Sequence[str], number: int) -> tuple[int, str]:
    """A table in a grid, whose cells may span rows and columns."""
    own: list[str] = []
    for line in (lines[n] for n in range(number, len(lines))):
        drawn = padded(line.strip()).translate(_DRAWN) if len(line) <= _MAX_LINE_CHARS else ""
        if drawn[:1] not in ("+", "|") or not (own or _BORDER.fullmatch(drawn)):
            break
        own.append(drawn)
    while own and not _BORDER.fullmatch(own[-1]):
        own.pop()
    return number + len(own), _text(own) if own else ""


@dataclass(slots=True)
class _Box:
    """A cell of a grid: its first column, how many columns and rows it spans, and its lines."""

    start: int
    columns: int
    rows: int = 1
    lines: list[str] = field(default_factory=list)


def _text(lines: Sequence[str]) -> str:
    borders = [n for n, line in enumerate(lines) if _SEGMENT.search(line)]
    edges = sorted({place for n in borders for match in _SEGMENT.finditer(lines[n]) for place in match.span()})
    if len(borders) == 1 or not 2 < len(edges) <= _MAX_COLUMNS:  # noqa: PLR2004 - one column is a box in a drawing
        return ""
    boxes: list[list[_Box]] = []
    open_boxes: dict[int, _Box] = {}
    for border, below in pairwise(borders):
        open_boxes = _band(lines[border:below], edges, open_boxes)
        boxes.append([box for start, box in open_boxes.items() if box.start == start and box.rows == 1])
    columns = Columns()
    placed = [columns.place(Cell(stripped(b.lines), b.rows, b.columns, b.start) for b in row) for row in boxes]
    num_headers = next((k for k, n in enumerate(borders) if "=" in lines[n] and 0 < k < len(placed)), 0)
    last = lines[borders[-2] + 1 : borders[-1]]
    body = [words_of(row) for row in placed[num_headers:]]
    num_begun = sum(bool(line[1 : edges[1]].strip()) for line in last)
    if len(body) <= 1 + (not num_headers) and num_begun * 3 >= len(last) * 2:
        # A database's client draws no lines between rows; in a cell of many lines, the other cells have fewer.
        num_headers = num_headers or len(body) - 1
        body = [[stripped([line[a + 1 : b]]) for a, b in pairwise(edges)] for line in last]
    if num_headers:
        return table_text([header_of(placed[:num_headers]), None, *body])
    return table_text(body) if len(body) > 1 else ""


def _band(lines: Sequence[str], edges: Sequence[int], above: dict[int, _Box]) -> dict[int, _Box]:
    """The boxes between two borders, the first of which is the first line, by each column that they stand in. One that
    no line closes above goes on."""
    border, *inside = lines
    walls = [n for n, edge in enumerate(edges) if all(line[edge : edge + 1] in ("|", "+") for line in inside)]
    boxes: dict[int, _Box] = {}
    for left, right in pairwise(walls):
        start, end = edges[left], edges[right]
        box = above.get(left)
        if box is None or _RULED.fullmatch(border[start + 1 : edges[left + 1]]):
            box = _Box(left, right - left)
        else:
            box.rows += 1
            box.lines.append(border[start + 1 : end])
        box.lines += (line[start + 1 : end] for line in inside)
        boxes |= dict.fromkeys(range(left, right), box)
    return boxes
