"""Parser for PowerPoint files: each slide is a page, with its tables, charts, diagrams and notes."""

import re
from collections.abc import Iterable, Iterator, Mapping

from lxml.etree import QName, XMLSyntaxError, _Element

from ingest.parse.archive import Archive, opened
from ingest.parse.composer import Composer
from ingest.parse.formulas import emptied_equations
from ingest.parse.marks import SIGNS, Run, text_of
from ingest.parse.numerals import OF_HTML
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.pictures import described, read_chart
from ingest.parse.sniff import Format
from ingest.parse.spans import Cell, Columns, span_of
from ragkv.errors import Rejected

_DECK = "ppt/presentation.xml"
_TITLES = ("title", "ctrTitle")
_MARGINS = ("ftr", "hdr")
_FURNITURE = (*_MARGINS, "dt", "sldNum", "sldImg")
_TRUE, _FALSE, _STRUCK = ("1", "true"), ("0", "false"), ("sngStrike", "dblStrike")
_NUMBERED = re.compile("(arabic|alphaLc|alphaUc|romanLc|romanUc)(Plain|Period|ParenR|ParenBoth)")
_NUMERALS = {
    "arabic": "decimal", "alphaLc": "lower-alpha", "alphaUc": "upper-alpha", "romanLc": "lower-roman",
    "romanUc": "upper-roman",
}  # fmt: skip
_MAX_LEVEL = 8
_AROUND = {"Plain": "{} ", "Period": "{}. ", "ParenR": "{}) ", "ParenBoth": "({}) "}
_TOOL_TITLE = re.compile(r"((microsoft )?powerpoint\b.*|slide \d+|presentation\d*|title)?", re.IGNORECASE)


def read_slides(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Slides in their order, the title of each first, its notes last; then what stands in footers and behind slides
    alone. Comments, and hidden slides and shapes, are left out; a hidden slide is an empty page."""
    composer = Composer()
    margins: list[str] = []
    layouts: dict[str, None] = {}
    with opened(body, "presentation") as archive:
        title = archive.core_title()
        relations = archive.relations(_DECK)
        entries = archive.xml(_DECK).iterfind("{*}sldIdLst/{*}sldId")
        ids = dict.fromkeys(value for entry in entries for value in entry.attrib.values() if value in relations)
        for number, path in enumerate((relations[id_].path for id_ in ids), start=1):
            composer.page()
            slide = archive.xml(path)
            if slide.get("show") in _FALSE and omissions.leaves_out(_words(slide)):
                continue
            parts = _Slide(archive, path)
            margins += _add_slide(parts, slide, number, composer, omissions)
            layouts.update(dict.fromkeys(parts.paths("slideLayout")))
        masters = dict.fromkeys(path for layout in layouts for path in _Slide(archive, layout).paths("slideMaster"))
        for part in _readable(archive, (*layouts, *masters)):  # what they show on every slide
            shapes = (shape for shape in _shapes(part, omissions) if QName(shape).localname == "sp")
            margins += (_words(shape) for shape in shapes if not _placeholder(shape))
    composer.margins(line for words in margins for line in words.split("\n"))
    return composer.parsed(fallback_title if _TOOL_TITLE.fullmatch(title) else title, Format.PPTX)


class _Slide:
    """The parts beside a slide. Those that are missing or damaged are left out: the slide shows without them."""

    def __init__(self, archive: Archive, path: str) -> None:
        self._archive = archive
        self._relations = archive.relations(path)

    def named_by(self, element: _Element) -> Iterator[_Element]:
        paths = (relation.path for key, relation in self._relations.items() if key in element.attrib.values())
        return _readable(self._archive, paths)

    def notes(self) -> Iterator[_Element]:
        return _readable(self._archive, self.paths("notesSlide"))

    def paths(self, kind: str) -> Iterator[str]:
        return (relation.path for relation in self._relations.values() if relation.kind == kind)


def _readable(archive: Archive, paths: Iterable[str]) -> Iterator[_Element]:
    for path in paths:
        try:
            part = archive.xml(path)
        except (Rejected, XMLSyntaxError):
            continue
        yield part


def _add_slide(parts: _Slide, slide: _Element, number: int, composer: Composer, omissions: Omissions) -> Iterable[str]:
    """Add a slide, and return the words of its headers and footers."""
    for equation, line in emptied_equations(slide):
        equation.tag, equation.text = "t", line
    shapes = list(_shapes(slide, omissions))
    titles = [_words(shape) for shape in shapes if _placeholder(shape) in _TITLES]
    composer.heading(" ".join(filter(None, titles)) or f"Slide {number}", level=1)
    for shape in shapes:
        _add_shape(parts, shape, composer)
    for notes in parts.notes():
        words = "\n".join(_words(shape) for shape in _shapes(notes, omissions) if _placeholder(shape) == "body")
        composer.block(f"Notes: {words}" if words.strip() else "")
    return [_words(shape) for shape in shapes if _placeholder(shape) in _MARGINS]


def _add_shape(parts: _Slide, shape: _Element, composer: Composer) -> None:
    match QName(shape).localname:
        case "sp" if _placeholder(shape) not in _TITLES + _FURNITURE:
            composer.block(_words(shape))
        case "pic":
            composer.block(described(_properties(shape).get("descr")))
        case "tbl":
            columns = Columns()  # a cell that others cover has no words of it
            cells = (
                [
                    Cell(_words(cell), span_of(cell, "rowSpan"), span_of(cell, "gridSpan"))
                    for cell in row.iterfind("{*}tc")
                ]
                for row in shape.iterfind("{*}tr")
            )
            composer.table(map(columns.lay, cells))
        case "chart":
            for title, rows in map(read_chart, parts.named_by(shape)):
                composer.block(title)
                composer.table(rows)
        case "relIds":
            for diagram in parts.named_by(shape):
                composer.block("\n".join(map(_words, diagram.iter("{*}pt"))))


def _shapes(element: _Element, omissions: Omissions) -> Iterator[_Element]:
    """Shapes, pictures, tables, charts and diagrams that are shown, in the order in which they are drawn. Of
    alternatives, the first."""
    for child in element.iterchildren("*"):
        if _properties(child).get("hidden") in _TRUE and omissions.leaves_out(_words(child)):
            continue
        match QName(child).localname:
            case "sp" | "pic" | "tbl" | "chart" | "relIds":
                yield child
            case "AlternateContent":
                yield from _shapes(child[0], omissions) if len(child) else ()
            case "timing" | "transition" | "extLst":
                pass
            case _:
                yield from _shapes(child, omissions)


def _properties(shape: _Element) -> Mapping[str, str]:
    """Properties of a shape, a picture or a group; none of what is none of these."""
    properties = shape.find("*/{*}cNvPr")
    return {} if properties is None else properties.attrib


def _placeholder(shape: _Element) -> str | None:
    placeholder = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
    return None if placeholder is None else placeholder.get("type", "obj")


def _words(element: _Element) -> str:
    """Paragraphs, one a line, those of numbered lists with their numbers."""
    counts: dict[tuple[_Element, int], tuple[str, int]] = {}
    lines: list[str] = []
    for paragraph in element.iter("{*}p"):
        runs: list[Run] = []
        for piece in paragraph.iter("{*}t", "{*}br", "{*}tab"):
            is_text = QName(piece).localname == "t"
            look = (piece.getparent() if is_text else piece).find("{*}rPr")
            baseline = "" if look is None else look.get("baseline", "").strip("0%")
            sign = SIGNS["sub" if baseline.startswith("-") else "sup"] if baseline else ""
            is_struck = look is not None and look.get("strike") in _STRUCK
            runs.append(Run((piece.text or "") if is_text else " ", sign, is_struck))
        if words := text_of(runs):
            lines.append(f"{_number(paragraph, counts)}{words}")
    return "\n".join(lines)


def _number(paragraph: _Element, counts: dict[tuple[_Element, int], tuple[str, int]]) -> str:
    """The number of an item that is numbered automatically. `counts`: of the levels so far, how they are numbered, and
    the last number."""
    body, numbering = paragraph.getparent(), paragraph.find("{*}pPr/{*}buAutoNum")
    level = 0 if (properties := paragraph.find("{*}pPr")) is None else min(span_of(properties, "lvl", 0), _MAX_LEVEL)
    for key in [key for key in counts if key[0] is not body or key[1] > level]:
        del counts[key]
    match = None if numbering is None else _NUMBERED.fullmatch(numbering.get("type", ""))
    kind, number = counts.pop((body, level), ("", 0))
    if match is None:
        return ""
    number = number + 1 if kind == match[0] else span_of(numbering, "startAt")
    counts[body, level] = match[0], number
    return _AROUND[match[2]].format(OF_HTML[_NUMERALS[match[1]]](number))
