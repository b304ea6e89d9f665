"""Lists as downloadable files: JSON Lines, sent while they are read."""

import itertools
from collections.abc import Generator, Iterable

import msgspec
from litestar.response import Stream

from api.http.disconnect import stepwise
from ragkv.page import MAX_PAGE

JSON_LINES = "application/jsonl"


def json_lines(values: Iterable[msgspec.Struct], name: str) -> Stream:
    """A file of this name, a value a line. `values` may block: they are read in threads, a page at a time."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Stream(stepwise(_pages(values)), media_type=JSON_LINES, headers=headers)


def _pages(values: Iterable[msgspec.Struct]) -> Generator[bytes, None, None]:
    rest = iter(values)
    while page := list(itertools.islice(rest, MAX_PAGE)):
        yield msgspec.json.Encoder().encode_lines(page)
