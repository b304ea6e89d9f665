"""Validate a parsed document that comes out of the sandbox, whose code may have been taken over by the file."""

from itertools import pairwise

from ingest.parse import MAX_TEXT_CHARS, Parsed
from ingest.parse.clean import is_scrubbed
from ingest.parse.parsed import one_line
from ingest.parse.sniff import Format

_MAX_LEVEL = 100
_MEDIA_TYPES = {format_.value for format_ in Format}


def is_valid(parsed: Parsed) -> bool:
    """Whether the document has every property that `Parsed` promises."""
    return (
        0 < len(parsed.text) <= MAX_TEXT_CHARS
        and is_scrubbed(parsed.text)
        and _is_title(parsed.title)
        and parsed.media_type in _MEDIA_TYPES
        and _pages_are_valid(parsed)
        and _sections_are_valid(parsed)
    )


def _pages_are_valid(parsed: Parsed) -> bool:
    bounds = [0, *(bound for page in parsed.pages for bound in (page.start, page.end)), len(parsed.text)]
    numbers = [page.number for page in parsed.pages]
    return numbers == list(range(1, len(numbers) + 1)) and _ascend(bounds)


def _sections_are_valid(parsed: Parsed) -> bool:
    bounds = [0, *(bound for s in parsed.sections for bound in (s.start, s.body)), len(parsed.text)]
    return _ascend(bounds) and all(_is_title(s.title) and 1 <= s.level <= _MAX_LEVEL for s in parsed.sections)


def _ascend(numbers: list[int]) -> bool:
    return all(one <= following for one, following in pairwise(numbers))


def _is_title(title: str) -> bool:
    return bool(title) and one_line(title) == title and is_scrubbed(title)
