"""Table rows as lines of text. Under a header, each row carries its labels, so that a chunk that begins in the
middle of the table makes sense by itself. Cells may be labels, numbers or nothing, by how they are written."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, dropwhile, groupby, islice, takewhile, zip_longest

SEPARATOR = " | "
LOOKAHEAD = 20
"""Rows at the top of a table by which it is told what labels it."""
_MAX_LABEL_CHARS = 80
_LETTER = re.compile(r"[^\W\d_]")
_YEAR = re.compile(r"(?:1[5-9]|20|21)\d\d")
_QUANTITY = re.compile(rf"(?!{_YEAR.pattern}\b(?![-./]))[$€£¥+−-]?\d")
_SIGN = re.compile(r"[#№%]")
_ADDRESS = re.compile(r"@|://")
_NUMBER = re.compile(
    r"[<>~≈±+\-–−(]{0,3}[$€£¥]?[ ]?(?:\d[\d.,'’ _/:]{0,40}|[.,]\d{1,40})(?:[eE][+-]?\d{1,4})?[ ]?[%‰°$€£¥)*]{0,3}"
)
_TIME = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:[T ]\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)
_ABSENT = {"", "-", "–", "—", "n/a", "na", "nan", "null", "none", "..", "?"}


def lines_of_table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """One line a row, `label: value | label: value` where the table has a header, its cells alone where not.

    Rows without words separate tables, or parts of one in the same columns. A labelled line ends with a line feed more:
    as a paragraph, it is not cut where a chunk may end after it.
    """
    labels: Sequence[str] = ()
    cleaned = ([" ".join(cell.split()) for cell in row] for row in rows)
    for has_words, table in groupby(_without_gap(cleaned), key=any):
        if not has_words:
            continue
        start = list(islice(table, LOOKAHEAD))
        is_wide = any(sum(map(bool, row)) > 1 for row in start)
        may_go_on = _columns(start) == _columns([labels])  # below a gap in a table
        while is_wide and sum(map(bool, start[0])) == 1:  # a title above the table
            yield line_of(start.pop(0))
            may_go_on = False
        if is_header(start[0], start[1:]) and (not may_go_on or _begins_table(start, labels)):
            header = start.pop(0)
            labels = labels_of(header)
            yield line_of(header) + "\n"
        elif not is_wide or not _columns(start) <= _columns([labels]):
            labels = ()  # those of the table before hold for one without a header in the same columns
        for row in chain(start, table):
            yield line_of(row, labels) + "\n" if labels else line_of(row)


def _without_gap(rows: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    """The rows, without those that have no words below a first one that labels what follows them."""
    filled = dropwhile(lambda row: not any(row), rows)
    top, gap = list(islice(filled, 1)), list(islice(filled, 1))
    if any(map(any, gap)):
        return chain(top, gap, filled)
    below = list(islice(dropwhile(lambda row: not any(row), filled), LOOKAHEAD))
    part = list(takewhile(any, below))
    is_label_row = (
        part
        and is_header(top[0], part)
        and not any(label.endswith(":") for label in top[0])
        and _columns(top) == _columns(part)
        and sum(map(bool, part[0])) > 1
        and not (is_header(part[0], part[1:]) and _begins_table(part, labels_of(top[0])))
    )
    return chain(top, () if is_label_row else gap, below, filled)


def _begins_table(rows: Sequence[Sequence[str]], labels: Sequence[str]) -> bool:
    """Whether the first of rows below a gap labels the others itself, rather than the labels above the gap: it stands
    over numbers, or repeats one of these."""
    is_above_numbers = (label and are_numbers(list(cells)) for label, *cells in zip_longest(*rows, fillvalue=""))
    is_repeated = (cell and cell == label for cell, label in zip(labels_of(rows[0]), labels, strict=False))
    return any(is_above_numbers) or any(is_repeated)


def _columns(rows: Iterable[Sequence[str]]) -> set[int]:
    """The numbers of the columns that have words."""
    return {n for row in rows for n, cell in enumerate(row) if cell}


def is_header(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row labels the columns of the rows below it: short words that do not repeat, nor occur below."""
    labels, *filled = ([cell for cell in cells if cell] for cells in (row, *below))
    beside = [other[0] for other in below if other] if row and not row[0] else []  # below an empty corner
    widest = max(map(len, filled), default=0)
    return (
        len(labels) > 1
        and len(labels) * 2 >= widest > 0
        and len({label.casefold() for label in labels}) == len(labels)
        and any(map(_LETTER.search, labels + beside))
        and all(map(is_label, labels))
        and not any(cell == label for other in below for cell, label in zip(other, row, strict=False) if label)
        and 2 * sum(label.endswith(":") for label in labels) != len(labels)  # names of a form, each with its value
        and not (widest == 2 and _is_value(labels[1], [cells[1] for cells in filled if cells[1:]]))  # noqa: PLR2004
    )


def _is_value(words: str, below: Sequence[str]) -> bool:
    """Whether the second cell of a row of two is the value of its first, as in forms: it begins with a number, or a few
    of those below are numbers, or some of these are dates and others not."""
    numbers = [cell for cell in below if is_number(cell)]
    num_times = sum(_TIME.fullmatch(cell) is not None for cell in numbers)
    is_mixed = 0 < 2 * len(numbers) < len(below) or 0 < num_times < len(numbers)
    return is_mixed or _QUANTITY.match(words) is not None


def is_label(words: str) -> bool:
    """Whether a cell's words may name a column: with letters, a year or a sign, and no address."""
    has_name = _LETTER.search(words) or _YEAR.fullmatch(words) or _SIGN.fullmatch(words)
    return bool(has_name) and not _ADDRESS.search(words)


def line_of(row: Sequence[str], labels: Sequence[str] = ()) -> str:
    """The row's cells that are not empty, each after its label where it has one."""
    labelled = zip_longest(row, labels[: len(row)], fillvalue="")
    return SEPARATOR.join(f"{label}: {cell}" if label else cell for cell, label in labelled if cell)


def labels_of(header: Sequence[str]) -> list[str]:
    """A header's words as labels: bounded, for they are repeated with every row."""
    return [shortened(words.rstrip(": ")) for words in header]


def shortened(words: str) -> str:
    """Words cut to the length of a label."""
    return words if len(words) <= _MAX_LABEL_CHARS else f"{words[: _MAX_LABEL_CHARS - 1].rstrip()}…"


def is_number(cell: str) -> bool:
    """Whether a cell is a number, with its sign, currency or separators, or a date or time in digits."""
    return bool(_NUMBER.fullmatch(cell) or _TIME.fullmatch(cell))


def is_absent(cell: str) -> bool:
    """Whether a cell has no value."""
    return cell.casefold() in _ABSENT


def are_numbers(cells: list[str]) -> bool:
    """Whether all cells that have a value are numbers, and one has."""
    present = [cell for cell in cells if not is_absent(cell)]
    return bool(present) and all(map(is_number, present))
