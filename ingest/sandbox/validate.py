"""Validate a parsed document that comes out of the sandbox, whose code may have been taken over by the file."""

from itertools import pairwise

from ingest.parse import Parsed
from ingest.parse.clean import is_scrubbed
from ingest.parse.parsed import MAX_TEXT_CHARS, one_line
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
        and [page.number for page in parsed.pages] == list(range(1, len(parsed.pages) + 1))
        and _ascend_to(len(parsed.text), [bound for page in parsed.pages for bound in (page.start, page.end)])
        and all(_is_title(section.title) and 1 <= section.level <= _MAX_LEVEL for section in parsed.sections)
        and _ascend_to(
            len(parsed.text), [bound for section in parsed.sections for bound in (section.start, section.body)]
        )
    )


def _ascend_to(end: int, bounds: list[int]) -> bool:
    return all(one <= following for one, following in pairwise([0, *bounds, end]))


def _is_title(title: str) -> bool:
    return bool(title) and one_line(title) == title and is_scrubbed(title)
