"""Downloads: uploaded content, sent so that browsers execute nothing in it, and lists as JSON Lines."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import msgspec
from litestar.response import File, Stream

from api.http.disconnect import stepwise
from ragkv.service.base.page import MAX_PAGE

JSON_LINES = "application/jsonl"
SANDBOXED = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
"""Headers of uploaded content."""


def attachment(path: Path, name: str) -> File:
    """An uploaded file, byte for byte, to be saved under a name."""
    return File(path, filename=name, media_type="application/octet-stream", headers=SANDBOXED)


def json_lines(values: Iterable[msgspec.Struct], name: str) -> Stream:
    """A file in JSON Lines, sent while it is read. `values` may block: they are read in threads, a page at a time."""
    unread = iter(values)
    pages = iter(lambda: list(itertools.islice(unread, MAX_PAGE)), [])  # up to an empty one
    lines = (msgspec.json.Encoder().encode_lines(page) for page in pages)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Stream(stepwise(lines), media_type=JSON_LINES, headers=headers)
