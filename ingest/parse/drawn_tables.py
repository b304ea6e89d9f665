"""Tables drawn with characters: in a grid of lines, as in reStructuredText, Pandoc and the output of databases, or with
cells that stand below each other, separated by nothing but space."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from ingest.parse.rows import LOOKAHEAD, are_numbers, is_header, is_number
from ingest.parse.spans import Cell, Columns, header_of, words_of
from ingest.parse.text_tables import table_text

_MAX_LINE_CHARS = 1_000
_LEAST_ROWS = 2
_FILLER = "\0"  # no text has one: it is scrubbed before
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
    "\U0001f300-\U0003fffd]"
)
_SIMPLE_RULE = re.compile(r" *=+(?: +=+)+")
_SPAN_RULE = re.compile(r" *-+(?: +-+)+")
_RULE = re.compile(r"\s*[-=]{2,}(?:\s+[-=]{2,})+")
_WORDS = re.compile(r"\S+(?: \S+)*")
_PART = re.compile(r"\S+")
_CODE = re.compile(r"[=;{}\[\]\"'<>\\]|[,:]$")
_MAX_COLUMNS = 100
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
        drawn = _padded(line.strip()).translate(_DRAWN) if len(line) <= _MAX_LINE_CHARS else ""
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
    placed = [columns.place(Cell(_stripped(b.lines), b.rows, b.columns, b.start) for b in row) for row in boxes]
    num_headers = next((k for k, n in enumerate(borders) if "=" in lines[n] and 0 < k < len(placed)), 0)
    last = lines[borders[-2] + 1 : borders[-1]]
    body = [words_of(row) for row in placed[num_headers:]]
    num_begun = sum(bool(line[1 : edges[1]].strip()) for line in last)
    if len(body) <= 1 + (not num_headers) and num_begun * 3 >= len(last) * 2:
        # A database's client draws no lines between rows; in a cell of many lines, the other cells have fewer.
        num_headers = num_headers or len(body) - 1
        body = [[_stripped([line[a + 1 : b]]) for a, b in pairwise(edges)] for line in last]
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


def _padded(line: str) -> str:
    """The line with a filler behind each character that is shown twice as wide."""
    return line if line.isascii() else _WIDE.sub(rf"\g<0>{_FILLER}", line)


def _stripped(lines: Iterable[str]) -> str:
    """The words of _padded lines."""
    return " ".join(filter(None, (line.replace(_FILLER, "").strip() for line in lines)))


def read_simple(lines: Sequence[str], number: int) -> tuple[int, str]:
    """A simple table of reStructuredText: between two rules, the header above a third."""
    if not _is_simple_rule(lines[number]) or not any(map(str.strip, lines[number + 1 : number + 2])):
        return number, ""
    starts = [match.start() for match in _PART.finditer(lines[number])]
    rows: list[list[str] | None] = []
    end = number + 1
    for end in range(number + 1, len(lines)):
        line = _padded(lines[end])
        if _is_simple_rule(line):
            if end + 1 == len(lines) or not lines[end + 1].strip():
                return end + 1, table_text(rows)
            rows.append(None)
        elif line.strip() and not _SPAN_RULE.fullmatch(line):
            cells = _cut(line, starts)
            above = rows[-1] if rows else None
            if above and not cells[0]:  # a line more of the row above
                rows[-1] = [f"{cell} {more}".strip() for cell, more in zip(above, cells, strict=True)]
            else:
                rows.append(cells)
    return end, ""


def _is_simple_rule(line: str) -> bool:
    return len(line) <= _MAX_LINE_CHARS and _SIMPLE_RULE.fullmatch(line) is not None


def _cut(line: str, starts: Sequence[int]) -> list[str]:
    return [_stripped([line[begin:end]]) for begin, end in pairwise([*starts, len(line)])]


def read_aligned(lines: Sequence[str], number: int) -> tuple[int, str]:
    """Aligned columns, two blanks or more apart: below a header and a rule, or with a column of numbers."""
    own: list[str] = []
    for line in (lines[n] for n in range(number, len(lines))):
        if len(line) > _MAX_LINE_CHARS or "  " not in line.strip() or "|" in line:
            break
        own.append(_padded(line))
    end = number + len(own)
    if len(own) <= _LEAST_ROWS:
        return end, ""
    if _RULE.fullmatch(own[1]):
        rows = _in_columns([own[0], *own[2:]])
        return end, table_text([rows[0], None, *rows[1:]]) if rows else ""
    header, *below = _in_columns(own) or [[]]
    is_labelled = (
        is_header(header, below[:LOOKAHEAD])
        and not any(is_number(label) or _CODE.search(label) for label in header)
        and any(label and are_numbers(cells) for label, *cells in zip(header, *below, strict=True))
    )
    return end, table_text([header, None, *below]) if is_labelled else ""


def _in_columns(lines: Sequence[str]) -> list[list[str]]:
    """The cells of each line by columns, between which no line has words; none where a line's cells are not in one
    column each."""
    width = max(map(len, lines))
    words = [0] * (width + 1)
    cells = [[match.span() for match in _WORDS.finditer(line)] for line in lines]
    for begin, end in (span for of_line in cells for span in of_line):
        words[begin] += 1
        words[end] -= 1
    depths = [0, *accumulate(words)]
    starts = [n for n, (left, depth) in enumerate(pairwise(depths)) if depth and not left]
    if len(starts) < 2 or any(len(of_line) > len(starts) for of_line in cells):  # noqa: PLR2004 - columns
        return []
    rows = [_cut(line, [0, *starts[1:]]) for line in lines]
    is_whole = all(sum(map(bool, row)) == len(of_line) for row, of_line in zip(rows, cells, strict=True))
    return rows if is_whole else []
