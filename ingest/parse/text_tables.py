"""Tables that are drawn with characters become lines with labels, as those of every other format; the text around them
stays as it is."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, takewhile, zip_longest

from ingest.parse.parsed import Section
from ingest.parse.rows import labels_of, line_of, lines_of_table

_PIPE = re.compile(r"(?<!\\)\|")
_PIPE_RULE = re.compile(r"(?:[|+]\s*)?:?[-=]+:?\s*(?:[|+]\s*:?[-=]+:?\s*)*[|+]?")
_ORG_COOKIE = re.compile(r"<[lrc]?\d{0,4}>|[/<>]?")


@dataclass(frozen=True, slots=True)
class Block:
    """Lines [start, end) of a source, and the text that is read instead of them."""

    start: int
    end: int
    text: str


Reader = Callable[[Sequence[str], int], tuple[int, str]]
"""Reads the table that begins at a line: the number of the line after it, and its text. The text is empty where none
begins there; then none of the lines before that number begins one."""


def blocks_of(lines: Sequence[str], readers: Sequence[Reader], first_line: int = 0) -> Iterator[Block]:
    """The tables among the lines, whichever of the readers reads them."""
    number = 0
    while number < len(lines):
        outcomes = (reader(lines, number) for reader in readers)
        end, text = next((outcome for outcome in outcomes if outcome[0] > number), (number + 1, ""))
        if text:
            yield Block(first_line + number, first_line + end, text)
        number = end


def with_blocks(text: str, blocks: Sequence[Block], sections: Sequence[Section]) -> tuple[str, tuple[Section, ...]]:
    """The text with each block as a paragraph in the place of its lines, and the sections outside the blocks where they
    stand now."""
    if not blocks:
        return text, tuple(sections)
    line_starts = [*accumulate((len(line) + 1 for line in text.split("\n")), initial=0)]
    section_starts = [section.start for section in sections]
    cuts = [0, *chain.from_iterable((line_starts[b.start], line_starts[b.end]) for b in blocks), len(text) + 1]
    pieces: list[str] = []
    moved: list[Section] = []
    length = 0
    for begin, end, block in zip(cuts[::2], cuts[1::2], [*(block.text for block in blocks), ""], strict=True):
        source = text[begin:end].lstrip("\n")
        piece = source.rstrip("\n")
        shift = length - begin - (len(text[begin:end]) - len(source))
        for section in sections[bisect_left(section_starts, begin) : bisect_left(section_starts, end)]:
            body = min(section.body + shift, length + len(piece))
            moved.append(replace(section, start=section.start + shift, body=body))
        present = [f"{part}\n\n" for part in (piece, block) if part]
        length += sum(map(len, present))
        pieces += present
    return "".join(pieces)[:-2], tuple(moved)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table whose header is marked as such: it holds whatever its words are."""
    labels = labels_of([" ".join(label.split()) for label in header])
    if not any(labels):
        yield from lines_of_table(rows)
        return
    yield line_of(labels) + "\n"
    for row in rows:
        if line := line_of([" ".join(cell.split()) for cell in row], labels):
            yield line + "\n"


def table_text(rows: Sequence[Sequence[str] | None]) -> str:
    """A table as paragraphs. Rows above the first rule (None) are its header; without one, its words decide."""
    ruled = list(rows)
    while ruled and ruled[0] is None:
        ruled.pop(0)
    head = [row for row in takewhile(lambda row: row is not None, ruled) if row]
    body = [row for row in ruled[len(head) :] if row]
    header = [" ".join(filter(None, column)) for column in zip_longest(*head, fillvalue="")]
    return "\n".join(table_lines(header, body) if body else lines_of_table(head)).strip()


def read_piped(lines: Sequence[str], number: int) -> tuple[int, str]:
    """A table below a header and a rule, its cells between pipes."""
    header, rule = [*lines[number : number + 2], ""][:2]
    if "|" not in header or not any(map(str.isalnum, header)) or not _is_pipe_rule(rule):
        return number, ""
    if not 1 < len(_pipe_cells(header)) == len(_pipe_cells(rule.replace("+", "|"))):
        return number, ""
    return _piped(lines, number, lambda line: "|" in line or _is_pipe_rule(line))


def read_org_table(lines: Sequence[str], number: int) -> tuple[int, str]:
    """A table of Org: lines that begin with a pipe."""
    return _piped(lines, number, lambda line: line.lstrip().startswith("|"))


def _piped(lines: Sequence[str], number: int, is_row: Callable[[str], bool]) -> tuple[int, str]:
    own = list(takewhile(is_row, (lines[n] for n in range(number, len(lines)))))
    rows = [None if _is_pipe_rule(line) else _pipe_cells(line) for line in own]
    content = [row for row in rows if row is None or not any(row) or not all(map(_ORG_COOKIE.fullmatch, row))]
    return number + len(own), table_text(content)


def _is_pipe_rule(line: str) -> bool:
    return "-" in line and ("|" in line or "+" in line) and _PIPE_RULE.fullmatch(line.strip()) is not None


def _pipe_cells(line: str) -> list[str]:
    cells = [cell.replace("\\|", "|").strip() for cell in _PIPE.split(line.strip().removeprefix("|"))]
    return cells[:-1] if len(cells) > 1 and not cells[-1] else cells
