"""Validate what comes out of the sandbox, whose code may have been taken over by the file."""

from itertools import pairwise

from ingest.parse import Parsed
from ingest.parse.clean import is_scrubbed
from ingest.parse.parsed import MAX_PAGES, MAX_TEXT_CHARS, one_line
from ingest.parse.pdf_page import MAX_PIXELS, MAX_POINTS, BoxedPage, Located, Locating, Picture
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


def is_valid_picture(picture: Picture) -> bool:
    """Whether the picture is of a bounded size and has all its pixels."""
    width, height = picture.width, picture.height
    return width > 0 and height > 0 and width * height <= MAX_PIXELS and len(picture.pixels) == width * height * 3


def are_valid_boxes(located: Located, asked: Locating) -> bool:
    """Whether the pages are those asked for, and the boxes lie on them."""
    numbers = [page.number for page in located.pages]
    return (
        1 <= located.num_pages <= MAX_PAGES
        and bool(numbers)
        and numbers == list(range(asked.first, asked.first + len(numbers)))
        and numbers[-1] <= min(asked.last, located.num_pages)
        and all(map(_holds_its_boxes, located.pages))
    )


def _holds_its_boxes(page: BoxedPage) -> bool:
    """A number that is none compares as False."""
    return (
        0 < page.width <= MAX_POINTS
        and 0 < page.height <= MAX_POINTS
        and all(
            0 <= box.x <= box.x + box.width <= page.width + 1 and 0 <= box.y <= box.y + box.height <= page.height + 1
            for box in page.boxes
        )
    )


def _ascend_to(end: int, bounds: list[int]) -> bool:
    return all(one <= following for one, following in pairwise([0, *bounds, end]))


def _is_title(title: str) -> bool:
    return bool(title) and one_line(title) == title and is_scrubbed(title)
