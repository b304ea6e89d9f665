"""Parser for CSV and similar files: rows with their column labels, whatever delimiter the file uses."""

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from typing import Literal

from ingest.parse.composer import Composer
from ingest.parse.encoded import without_encoded
from ingest.parse.encoding import decode
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import MAX_TEXT_CHARS, Parsed
from ingest.parse.sniff import Format
from ragkv.errors import TooLarge
from ragkv.text import scrub

_DELIMITERS = ",;\t|"
_DECLARED = re.compile(r"sep=(.)\n", re.IGNORECASE)  # Excel's own first line
_SAMPLE_CHARS = 64 * 1024
_SAMPLE_ROWS = 100
_MAX_CELL_LINES = 1_000
_Quoting = Literal[0, 3]  # of csv: minimal, none
csv.field_size_limit(MAX_TEXT_CHARS)


def read_delimited(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Each row with the labels of its header, if there is one. Quotes that are never closed are characters."""
    text = without_encoded(scrub(decode(body)), omissions)
    if declared := _DECLARED.match(text):
        text = text[declared.end() :]
    delimiter = declared[1] if declared else _delimiter(text)
    composer = Composer()
    quoting: _Quoting = csv.QUOTE_MINIMAL if _closes_quotes(text, delimiter) else csv.QUOTE_NONE
    try:
        composer.table(_rows(text, delimiter, quoting))
    except csv.Error:
        raise TooLarge(f"a cell holds more than {MAX_TEXT_CHARS:,} characters: split it") from None
    return composer.parsed(fallback_title, Format.CSV)


def _rows(text: str, delimiter: str, quoting: _Quoting = csv.QUOTE_MINIMAL) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting, skipinitialspace=True)


def _delimiter(text: str) -> str:
    """The delimiter that cuts most of the first rows into the same number of cells, more than one."""

    def score(delimiter: str) -> tuple[float, int]:
        widths = [len(row) for row in islice(_rows(text[:_SAMPLE_CHARS], delimiter), _SAMPLE_ROWS) if row]
        width = max(widths, key=widths.count, default=1)
        return (widths.count(width) / len(widths), width) if width > 1 else (0, 1)

    return max(_DELIMITERS, key=score)


def _closes_quotes(text: str, delimiter: str) -> bool:
    """Whether no quote makes so many lines one cell that it cannot have been meant."""
    rows = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    ends = (rows.line_num for _ in rows)
    return all(end - begin <= _MAX_CELL_LINES for begin, end in pairwise(chain((0,), ends)))
