"""Validate the output of the sandbox, whose code may have been taken over by the file."""

from collections.abc import Iterable
from dataclasses import astuple
from itertools import pairwise

from ingest.parse import Parsed
from ingest.parse.parsed import MAX_PAGES, MAX_TEXT_CHARS, one_line
from ingest.parse.quotes import MAX_PIXELS, MAX_POINTS, Located, Locating, Picture
from ingest.parse.scan import Box
from ingest.parse.sniff import Format
from ragkv.text import is_scrubbed

_MAX_LEVEL = 100
_MAX_LEFT_OUT = 1 << 40  # no file has more words or characters
_MEDIA_TYPES = {format_.value for format_ in Format}


def is_valid(parsed: Parsed) -> bool:
    """Whether the document has every property that `Parsed` promises."""
    scans = parsed.scans
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
        and all(
            n < following for n, following in pairwise([0, *(scan.number for scan in scans), len(parsed.pages) + 1])
        )
        and all(_holds(scan.width, scan.height, (line.box for line in scan.lines)) for scan in scans)
        and all(line.text and is_scrubbed(line.text) for scan in scans for line in scan.lines)
        and all(_is_title(attachment.name) and attachment.body for attachment in parsed.attachments)
        and all(0 <= count <= _MAX_LEFT_OUT for count in astuple(parsed.left_out))
    )


def is_valid_picture(picture: Picture) -> bool:
    """Whether the picture is of a bounded size and has all its pixels."""
    width, height = picture.width, picture.height
    return width > 0 and height > 0 and width * height <= MAX_PIXELS and len(picture.pixels) == width * height * 3


def are_valid_boxes(located: Located, locating: Locating) -> bool:
    """Whether the pages are those asked for, and the boxes lie on them."""
    numbers = [page.number for page in located.pages]
    return (
        1 <= located.num_pages <= MAX_PAGES
        and bool(numbers)
        and numbers == list(range(locating.first, locating.first + len(numbers)))
        and numbers[-1] <= min(locating.last, located.num_pages)
        and all(_holds(page.width, page.height, page.boxes) for page in located.pages)
    )


def _holds(width: float, height: float, boxes: Iterable[Box]) -> bool:
    """Whether the boxes lie on a page of that size. A number that is none compares as False."""
    return (
        0 < width <= MAX_POINTS
        and 0 < height <= MAX_POINTS
        and all(
            0 <= box.x <= box.x + box.width <= width + 1 and 0 <= box.y <= box.y + box.height <= height + 1
            for box in boxes
        )
    )


def _ascend_to(end: int, bounds: list[int]) -> bool:
    return all(bound <= following for bound, following in pairwise([0, *bounds, end]))


def _is_title(title: str) -> bool:
    return bool(title) and one_line(title) == title and is_scrubbed(title)
