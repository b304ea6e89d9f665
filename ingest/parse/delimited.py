"""Parser for CSV and similar files: rows with their column labels, whatever delimiter, quotes and escapes the file
uses."""

import csv
import io
import re
from _csv import Reader
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise, takewhile
from typing import Literal

from ingest.parse.composer import Composer
from ingest.parse.encoded import without_encoded
from ingest.parse.encoding import decode
from ingest.parse.parsed import MAX_TEXT_CHARS, Omissions, Parsed
from ingest.parse.rows import LOOKAHEAD, are_numbers, is_absent, is_header, is_label, is_number, line_of
from ingest.parse.sniff import Format
from ingest.parse.text_tables import table_lines
from ragkv.errors import TooLarge
from ragkv.text import scrub

_DELIMITERS = ",;\t|^"
_DECLARED = re.compile(r"sep=(.)\n", re.IGNORECASE)  # Excel's own first line
_SCORED_CHARS, _SAMPLE_ROWS = 16 * 1024 * 1024, 1_000
_MAX_CELL_LINES = 1_000
_HINT_WEIGHT, _LEAST_CLEAN = 2, 0.001
_ONE_COLUMN = "\x1f"  # no text has this delimiter: it is scrubbed before
_LEAST_ROWS, _LEAST_COLUMNS, _LEAST_NUMBERS, _MAX_DIGITS = 2, 2, 3, 10
_SIGN = re.compile(r"^['\"]|['\"]$|\\[\"']|[\t|^]|[,;](?![ ]|$)")
_CODE = re.compile(r"[^\W\d].*\d|\d.*[^\W\d]")
_SINGLE_QUOTED = re.compile(r"(?:^|[,;\t|^])[ ]?'[^'\n]*'(?=[,;\t|^]|$)", re.MULTILINE)
_ESCAPED = re.compile(r"\\[\"',;|]")
_Quoting = Literal[0, 3]  # of csv: minimal, none
csv.field_size_limit(MAX_TEXT_CHARS)


@dataclass(frozen=True, slots=True)
class _Dialect:
    delimiter: str
    quote: str = '"'
    escape: str | None = None
    quoting: _Quoting = csv.QUOTE_MINIMAL


def read_delimited(body: bytes, fallback_title: str, omissions: Omissions, format_: Format = Format.CSV) -> Parsed:
    """Each row with the labels of its header, if there is one. format_: TSV where the file's name tells that its
    delimiters may be tabs."""
    text = without_encoded(scrub(decode(body)), omissions)
    if declared := _DECLARED.match(text):
        text = text[declared.end() :]
    composer = Composer()
    try:
        dialect = _dialect(text, declared[1] if declared else "", "\t" if format_ is Format.TSV else "")
        _add_rows(composer, _rows(text, dialect))
    except csv.Error:
        raise TooLarge(f"a cell holds more than {MAX_TEXT_CHARS:,} characters: split it") from None
    return composer.parsed(fallback_title, format_)


def _rows(text: str, dialect: _Dialect) -> Reader:
    return csv.reader(
        io.StringIO(text),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        escapechar=dialect.escape,
        quoting=dialect.quoting,
        skipinitialspace=True,
    )


def _dialect(text: str, declared: str, hint: str) -> _Dialect:
    """The delimiter, quotes and escapes that fit best."""
    score = partial(_score, text[:_SCORED_CHARS], hint=hint)
    quotings: tuple[_Quoting, ...] = (csv.QUOTE_MINIMAL, csv.QUOTE_NONE) if '"' in text else (csv.QUOTE_MINIMAL,)
    signs = declared or [sign for sign in _DELIMITERS if sign in text] or _ONE_COLUMN
    dialects = [_Dialect(sign, quoting=quoting) for sign in signs for quoting in quotings]
    dialects = [max(dialects, key=score)]
    if _SINGLE_QUOTED.search(text):
        dialects.append(_Dialect(dialects[0].delimiter, quote="'"))
    if _ESCAPED.search(text):
        dialects += [replace(dialect, escape="\\", quoting=csv.QUOTE_MINIMAL) for dialect in dialects]
    best = max(dialects, key=score)
    return best if declared or score(best) else _Dialect(_ONE_COLUMN, quoting=best.quoting)


def _score(text: str, dialect: _Dialect, hint: str) -> float:
    """The share of rows that have the usual number of cells, more than one, less the cells' signs that are delimiters
    or quotes elsewhere ("Wrangling messy CSV files by detecting row and type patterns", 2019). None of it for a text of
    one column and for a quote that is never closed."""
    rows = _rows(text, dialect)
    sample: list[list[str]] = []
    widths: Counter[int] = Counter()
    line, step = 0, 1
    for number, row in enumerate(rows):
        if rows.line_num - line > _MAX_CELL_LINES:
            return 0
        line = rows.line_num
        widths[len(row)] += 1
        if number % step == 0:
            sample.append(row)
        if len(sample) > _SAMPLE_ROWS:
            sample, step = sample[::2], step * 2
    del widths[0]
    width = max(filter(lambda width: width > 1, widths), key=lambda width: (widths[width], width), default=1)
    if widths[1] * 2 > widths.total() or width == 1:
        return 0
    fit = widths[width] / widths.total() * (width - 1) / width
    is_hinted = dialect.delimiter == hint
    usual = _DELIMITERS.replace(hint, "") if is_hinted else ""  # such as the commas in a cell between tabs
    cells = [cell for row in sample for cell in row]
    signs = (sign for cell in cells if not is_number(cell) for sign in _SIGN.findall(cell))
    num_signs = sum(sign not in usual for sign in signs)
    return fit * (_HINT_WEIGHT if is_hinted else 1) * max(_LEAST_CLEAN, 1 - num_signs / len(cells))


def _add_rows(composer: Composer, rows: Iterator[list[str]]) -> None:
    """Add a table. Beside the words of its first row, the values below tell whether it is a header."""
    start = list(islice(rows, LOOKAHEAD))
    titles = list(takewhile(lambda row: sum(map(bool, row)) < _LEAST_COLUMNS, start))
    header, below = next(iter(start[len(titles) :]), []), start[len(titles) + 1 :]
    is_named = is_header(header, below)
    columns = zip(header, *below, strict=False)
    shapes = ({re.sub(r"[^\W\d]", "a", re.sub(r"\d", "9", cell)) for cell in column} for column in columns)
    is_code = (len(shape) == 1 and _CODE.search(cell) for shape, cell in zip(shapes, header, strict=False))
    if is_named and len(below) >= _LEAST_ROWS and any(is_code):  # like all below it, such as AB-12: no header
        composer.lines(map(line_of, chain(start, rows)))
    elif is_named or not _labels(header, below):
        composer.table(chain(start, rows))
    else:
        composer.lines(chain(map(line_of, titles), table_lines(header, chain(below, rows))))


def _labels(header: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row labels the others though its words repeat, or are numbers in a row such as 1, 2, 3."""
    names = [cell for cell in header if not is_absent(cell)]
    numbers = [cell for cell in names if cell.isdecimal() and not is_label(cell)]
    if not all(is_label(cell) for cell in names if cell not in numbers):
        return False
    if not numbers:
        return any(is_label(name) and are_numbers(list(cells)) for name, *cells in zip(header, *below, strict=False))
    return len(numbers) >= _LEAST_NUMBERS and _are_in_order(header) and not any(map(_are_in_order, below))


def _are_in_order(row: Sequence[str]) -> bool:
    numbers = [int(cell) for cell in row if cell.isdecimal() and len(cell) < _MAX_DIGITS]
    return len(numbers) >= _LEAST_NUMBERS and all(right - left == 1 for left, right in pairwise(numbers))
