"""Lists: parameters that many have, and whole lists as files of JSON lines."""

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from litestar.params import QueryParameter
from litestar.response import Stream

from api.http.disconnect import stepwise
from ragkv.errors import Rejected
from ragkv.service.base.page import MAX_PAGE

JSON_LINES = "application/jsonl"

Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="Maximum number of items on a page.")]


def read_moment(name: str, text: str | None) -> datetime | None:
    """The moment that the parameter `name` gives in ISO 8601, in UTC if it names no zone. Raises Rejected."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Rejected(f"{name} is not a time in ISO 8601, such as 2026-01-31 or 2026-01-31T09:30:00Z") from None


def json_lines(values: Iterable[msgspec.Struct], name: str) -> Stream:
    """A file in JSON Lines, sent while it is read. `values` may block: they are read in threads, a page at a time."""
    unread = iter(values)
    pages = iter(lambda: list(itertools.islice(unread, MAX_PAGE)), [])  # up to an empty one
    lines = (msgspec.json.Encoder().encode_lines(page) for page in pages)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Stream(stepwise(lines), media_type=JSON_LINES, headers=headers)
