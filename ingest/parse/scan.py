"""Scanned pages as parsers see them: the source of their text, and the position of each line."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta

from ragkv.errors import TooLarge, Unsupported

if TYPE_CHECKING:
    from PIL.Image import Image

READ_PIXELS = 2_800_000  # A4 at 170 dots an inch: small print is 20 pixels high
MAX_LINES = 5_000
MAX_LINE_CHARS = 5_000
_NARROW, _NARROW_LETTER = frozenset("fijlrtI .,;:!|'`()[]"), 0.55
_WIDE, _WIDE_LETTER = frozenset("mwMW@%"), 1.5


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on a page, in points from its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text in a box. It runs to the right, or is turned clockwise by a number of `quarters`."""

    text: Annotated[str, Meta(max_length=MAX_LINE_CHARS)]
    box: Box
    quarters: Annotated[int, Meta(ge=0, le=3)] = 0

    def part(self, start: int, end: int) -> Box:
        """The box of characters [start, end), by the widths that they mostly have."""
        box, whole = self.box, _width(self.text)
        begin, finish = _width(self.text[:start]) / whole, _width(self.text[:end]) / whole
        if self.quarters in {2, 3}:  # read from the right or from below
            begin, finish = 1 - finish, 1 - begin
        if self.quarters in {0, 2}:
            return Box(box.x + begin * box.width, box.y, (finish - begin) * box.width, box.height)
        return Box(box.x, box.y + begin * box.height, box.width, (finish - begin) * box.height)


def _width(text: str) -> float:
    return sum(_NARROW_LETTER if letter in _NARROW else _WIDE_LETTER if letter in _WIDE else 1.0 for letter in text)


@dataclass(frozen=True, slots=True)
class Recognised:
    """The text of a picture, and its lines in the order of the text. A point is a pixel of the picture."""

    text: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class ScannedPage:
    """A page whose text was recognised. Its size and the boxes of its lines are in points, as it is shown."""

    number: int
    width: float
    height: float
    lines: Annotated[tuple[Line, ...], Meta(max_length=MAX_LINES)]

    @classmethod
    def of(
        cls, number: int, recognised: Recognised, width: float, height: float, pixels_a_point: float
    ) -> "ScannedPage":
        """A page of that size in points, whose picture was read. Boxes are no larger than it."""
        lines, by = [], 1 / pixels_a_point
        for line in recognised.lines[:MAX_LINES]:
            box = line.box
            left, top = min(max(box.x * by, 0.0), width), min(max(box.y * by, 0.0), height)
            right, bottom = min((box.x + box.width) * by, width), min((box.y + box.height) * by, height)
            shown = Box(left, top, max(right - left, 0.0), max(bottom - top, 0.0))
            lines.append(Line(line.text, shown, line.quarters))
        return cls(number, width, height, tuple(lines))


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page that was read by OCR."""

    text: str
    scan: ScannedPage


class PagePicture(NamedTuple):
    """A page to be read, and its size in points."""

    image: "Image"
    width: float
    height: float
    pixels_a_point: float


Recognise = Callable[["Image"], Recognised]
"""Reads a picture."""


class WantsOCR(Exception):
    """Pages are to be read by OCR, which this process has not loaded."""


class Paused(Exception):
    """Reading is to go on later, with these pages read."""

    def __init__(self, pages: tuple[ReadPage, ...]) -> None:
        super().__init__(pages)
        self.pages = pages


@dataclass(frozen=True)
class OCR:
    """The means to read pages that have no text: at most `max_pages` of a document.

    `refusal` is what to do where there are none; empty if there are. `recognise` is None in a process that has not
    loaded the models. `report` is told how many pages are read, of how many. `earlier` are those that were read before,
    and `is_paused` says, once another was read, that the others are for later.
    """

    refusal: str = ""
    max_pages: int = 0
    recognise: Recognise | None = None
    report: Callable[[int, int], None] = lambda done, total: None
    earlier: tuple[ReadPage, ...] = ()
    is_paused: Callable[[], bool] = lambda: False

    def read(self, numbers: Sequence[int], draw: Callable[[int], PagePicture]) -> Iterator[ReadPage]:
        """The pages of these numbers, one after the other. The picture of one is made only if it was not read before.
        Raises Unsupported, TooLarge for too many, WantsOCR, and Paused."""
        if self.refusal:
            raise Unsupported(self.refusal)
        if (total := len(numbers)) > self.max_pages:
            raise TooLarge(
                f"it has {total:,} pages without text, and OCR reads at most {self.max_pages:,} of a document: "
                "split it, or raise RAGKV_OCR_PAGES"
            )
        if (recognise := self.recognise) is None:
            raise WantsOCR
        self.report(len(self.earlier), total)
        pages: list[ReadPage] = []
        for number in numbers:
            if len(pages) < len(self.earlier):
                page = self.earlier[len(pages)]
            elif len(pages) > len(self.earlier) and self.is_paused():
                raise Paused(tuple(pages))
            else:
                image, *size = draw(number)
                recognised = recognise(image)
                page = ReadPage(recognised.text, ScannedPage.of(number, recognised, *size))
            pages.append(page)
            self.report(len(pages), total)
            yield page


WITHOUT_OCR = OCR("recognise its text first (for example with ocrmypdf) and upload that")
