"""The letters of a PDF page, with boxes: the model from which tables, columns, forms and running lines are read.

A page is its letters in text order, each with the white space before it. What is put into the text, such as the label
of a row, is letters without a place; what is moved or left out moves or loses letters.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import c_float
from dataclasses import dataclass, replace
from functools import partial
from math import pi
from typing import NamedTuple, cast

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

Point = tuple[float, float]
_SAMPLE = 40
"""Letters by which the direction of a page's text is found."""
_LEVEL = 0.05
_WIDE = 1.0
"""Heights of a line between two letters that belong to separate segments of it."""
_DESCENT = 0.2
"""Part of a letter's height that lies below its baseline."""
_RAISED, _RAISED_ALONE, _SMALLER = 0.1, 0.2, 0.95
"""Heights of a line between the baselines of two letters of which one is raised, and if it is not smaller."""
_CLOSE, _NEAR = 0.25, 0.6
"""Heights of a line between two letters of one word, and of two words."""
_RIGHT_TO_LEFT = re.compile("[\u0590-\u065f\u066a-\u06ef\u06fa-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
"""A letter, or a mark on one; digits are written from left to right."""
HYPHEN = "\ufffe"  # PDFium's, between two lines
_SIGNED = "+-\u2212\u2013"


class Box(NamedTuple):
    """A rectangle in points from the lower left of an upright page; a letter's is as high as its line."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2

    @property
    def height(self) -> float:
        return self.top - self.bottom

    def is_level(self, other: "Box") -> bool:
        """Whether both reach from one height to the same other one."""
        return abs(self.top - other.top) < _LEVEL and abs(self.bottom - other.bottom) < _LEVEL

    def holds(self, other: "Box") -> bool:
        """Whether the middle of the other lies inside."""
        return self.left <= (other.left + other.right) / 2 <= self.right and self.bottom <= other.middle <= self.top

    def encloses(self, other: "Box") -> bool:
        """Whether no part of the other lies outside."""
        return (
            self.left <= other.left
            and self.bottom <= other.bottom
            and other.right <= self.right
            and other.top <= self.top
        )

    def is_beside(self, other: "Box") -> bool:
        """Whether both stand on one line."""
        shared = min(self.top, other.top) - max(self.bottom, other.bottom)
        return 2 * shared >= min(self.height, other.height)

    def goes_on_with(self, other: "Box") -> bool:
        """Whether the other is the next one on its line, without a wide gap."""
        left, bottom, _, top = other
        wide = _WIDE * (self.top - self.bottom)
        if not -wide <= left - self.right < wide:
            return False
        return (bottom == self.bottom and top == self.top) or self.is_level(other) or self.is_beside(other)


class Letter(NamedTuple):
    """A character that is not space; `gap` is the space before it. `place` is that in the page's own text, as PDFium
    counts: in UTF-16 code units. None for one that was put in."""

    character: str
    place: int | None
    box: Box
    gap: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """Letters that follow each other on one line without a wide gap, or a table."""

    letters: Sequence[Letter]
    box: Box
    is_table: bool = False

    @property
    def words(self) -> str:
        return text_of(self.letters).strip()

    def after(self, gap: str) -> "Segment":
        """The segment with another space before it."""
        letter, *following = self.letters
        return replace(self, letters=[letter._replace(gap=gap), *following])


@dataclass(frozen=True, slots=True)
class Turn:
    """The rotation that makes a page's text upright: its words run to the right after it."""

    quarters: int

    def point(self, x: float, y: float) -> Point:
        return ((x, y), (-y, x), (-x, -y), (y, -x))[self.quarters]

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        if not self.quarters:
            return Box(left, bottom, right, top)
        xs, ys = zip(self.point(left, bottom), self.point(right, top), strict=True)
        return Box(min(xs), min(ys), max(xs), max(ys))


def text_of(letters: Iterable[Letter]) -> str:
    return "".join(f"{letter.gap}{letter.character}" for letter in letters)


def put_in(words: str, box: Box) -> list[Letter]:
    """Letters of words that the page does not show."""
    letters, gap = [], ""
    for character in words:
        if character.isspace():
            gap += character
        else:
            letters.append(Letter(character, None, box, gap))
            gap = ""
    return letters


def around(boxes: Iterable[Box]) -> Box:
    """The box around boxes."""
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    return Box(min(lefts), min(bottoms), max(rights), max(tops))


_box = cast("Callable[[tuple[float, ...]], Box]", partial(tuple.__new__, Box))
_letter = cast("Callable[[tuple[str, int, Box, str]], Letter]", partial(tuple.__new__, Letter))
"""The constructors without a Python call for each of the thousands of letters of a page."""


def letters_of(text_page: pdfium.PdfTextPage) -> tuple[list[Letter], Turn]:
    """The letters of a page, and how they were turned. Half a surrogate pair is kept: PDFium counts it, too."""
    text = text_page.get_text_range(errors="surrogatepass")
    characters: list[str] = []
    places: list[int] = []
    gaps: list[str] = []
    index, gap = 0, ""
    for character in text:
        if character.isspace():
            gap += character
        else:
            characters.append(character)
            places.append(index)
            gaps.append(gap)
            gap = ""
        index += 2 if character > "\uffff" else 1
    chars = places
    if index != len(text) or index != text_page.count_chars():
        chars = [pdfium_raw.FPDFText_GetCharIndexFromTextIndex(text_page, place) for place in places]
    boxes, turn = _boxes(text_page, chars)
    letters = list(map(_letter, zip(characters, places, boxes, gaps, strict=True)))
    if _RIGHT_TO_LEFT.search(text):
        letters = list(_spelled(letters))
    is_clockwise = (turn.quarters + text_page.page.get_rotation() // 90) % 4 == 1
    return list(_from_the_top(letters)) if is_clockwise else letters, turn


def _spelled(letters: Iterable[Letter]) -> Iterator[Letter]:
    """The letters, those of Hebrew and Arabic words from right to left. PDFium leaves a word in the order of the page
    where the file names each of its letters (ActualText), as Chrome and Google Docs do."""
    word: list[Letter] = []
    for letter in letters:
        is_part = _RIGHT_TO_LEFT.match(letter.character) is not None
        if word and (letter.gap or not is_part):
            yield from _from_the_right(word)
            word = []
        if is_part:
            word.append(letter)
        else:
            yield letter
    yield from _from_the_right(word)


def _from_the_right(word: list[Letter]) -> list[Letter]:
    if not word or word[0].box.left >= word[-1].box.left:
        return word
    rightmost, *following = sorted(word, key=lambda letter: -(letter.box.left + letter.box.right))
    return [rightmost._replace(gap=word[0].gap), *(letter._replace(gap="") for letter in following)]


def _from_the_top(letters: Iterable[Letter]) -> Iterator[Letter]:
    """The letters of a page that shows its words turned clockwise, its lines from the top down. PDFium sorts pieces of
    text that begin at one height of the page as it is shown from the left, which puts such lines in reverse order."""
    lines: list[list[Letter]] = []
    for letter in letters:
        if not lines or _begins_line(letter, lines[-1]):
            lines.append([])
        lines[-1].append(letter)
    runs: list[list[list[Letter]]] = []  # each of lines that PDFium put in reverse order
    for line in lines:
        if not runs or not _is_above(line, runs[-1][-1]):
            runs.append([])
        runs[-1].append(line)
    end = ""
    for letter, *following in (line for run in runs for line in reversed(run)):
        begins_line = end and "\n" not in letter.gap
        yield letter._replace(gap="" if end == HYPHEN else "\r\n" if begins_line else letter.gap)
        yield from following
        end = (following or [letter])[-1].character


def _begins_line(letter: Letter, line: Sequence[Letter]) -> bool:
    """Whether a letter begins another line than the one before it. PDFium may write a space for the end of one."""
    begin, end = line[0].box, line[-1].box
    is_back = begin.left < end.left and letter.box.left < end.left and not letter.box.is_beside(end)
    return "\n" in letter.gap or line[-1].character == HYPHEN or (letter.gap != "" and is_back)


def _is_above(line: Sequence[Letter], other: Sequence[Letter]) -> bool:
    """Whether a line begins right above where the other does, and both run to the right."""
    box, below = line[0].box, other[0].box
    is_level = all(letters[0].box.left <= letters[-1].box.left for letters in (line, other))
    return is_level and abs(box.left - below.left) <= below.height / 2 and box.bottom >= below.middle


def _boxes(text_page: pdfium.PdfTextPage, chars: Sequence[int]) -> tuple[Iterator[Box], Turn]:
    """The boxes of characters on the upright page, and its turn. They are written into one array, as there are
    thousands on a page."""
    rects = (pdfium_raw.FS_RECTF * len(chars))()
    raw_page = text_page.raw
    for char, rect in zip(chars, rects, strict=True):
        pdfium_raw.FPDFText_GetLooseCharBox(raw_page, char, rect)
    sides = (c_float * (4 * len(chars))).from_buffer(rects)[:]
    lefts, tops, rights, bottoms = (sides[side::4] for side in range(4))
    boxes = map(_box, zip(lefts, bottoms, rights, tops, strict=True))
    sample = chars[:: max(len(chars) // _SAMPLE, 1)]
    angles = (pdfium_raw.FPDFText_GetCharAngle(text_page, char) for char in sample)
    quarters = Counter(round(angle / (pi / 2)) % 4 for angle in angles)
    turn = Turn(next((quarter for quarter, count in quarters.items() if 2 * count > len(sample)), 0))
    return (turn.box(*box) for box in boxes) if turn.quarters else boxes, turn


def with_raised(letters: Iterable[Letter]) -> Iterator[Letter]:
    """The letters with a sign before each raised or lowered number that follows a digit (`ingest.parse.marks`). A
    line does not end beside one."""
    preceding: Letter | None = None
    for letter in letters:
        if preceding is None or (letter.gap and "\n" not in letter.gap) or letter.box.is_level(preceding.box):
            yield letter
        else:
            yield from _beside(preceding, letter)
        preceding = letter


def _beside(preceding: Letter, letter: Letter) -> Iterator[Letter]:
    """A letter that no blank parts from the one before."""
    box, other = preceding.box, letter.box
    apart, height = other.left - box.right, max(box.height, other.height)
    rise = (other.bottom - box.bottom + _DESCENT * (other.height - box.height)) / (height or 1)
    if abs(rise) < _RAISED or not -height < apart < _NEAR * height or not box.is_beside(other):
        yield letter
        return
    gap = letter.gap and (letter.gap.strip("\r\n") or (" " if apart > _CLOSE * height else ""))
    is_raised = other.height < _SMALLER * box.height or (other.height == box.height and rise > _RAISED_ALONE)
    is_number = letter.character.isdecimal() or letter.character in _SIGNED
    if not gap and is_raised and preceding.character.isdecimal() and is_number:
        yield Letter("^" if rise > 0 else "_", None, other)
    elif not gap and preceding.character.isdecimal() and letter.character.isdecimal():
        gap = " "  # the line goes on behind a raised number
    yield letter._replace(gap=gap)


def segments_of(letters: Iterable[Letter]) -> list[Segment]:
    """The letters in the same order, cut where a line ends and at wide gaps."""
    segments: list[list[Letter]] = []
    end = Box(0.0, 0.0, 0.0, 0.0)
    for letter in letters:
        if not end.goes_on_with(letter.box):
            segments.append([])
        segments[-1].append(letter)
        end = letter.box
    return [Segment(segment, around(letter.box for letter in segment)) for segment in segments]


def rows_of(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Segments side by side, from the top down, each row from the left."""
    rows: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda segment: -segment.box.middle):
        if rows and segment.box.is_beside(rows[-1][0].box):
            rows[-1].append(segment)
        else:
            rows.append([segment])
    return [sorted(row, key=lambda segment: segment.box.left) for row in rows]
