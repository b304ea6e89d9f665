"""Parser for PowerPoint files: each slide is a page, with its tables, charts, diagrams and notes."""

import re
from collections.abc import Iterable, Iterator

from lxml.etree import QName, XMLSyntaxError, _Element

from ingest.parse.archive import Archive, Relation, opened
from ingest.parse.charts import read_chart
from ingest.parse.composer import Composer
from ingest.parse.equations import emptied_equations
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_DECK = "ppt/presentation.xml"
_TITLES = ("title", "ctrTitle")
_FURNITURE = ("dt", "ftr", "sldNum", "hdr", "sldImg")
_TOOL_TITLE = re.compile(r"((microsoft )?powerpoint\b.*|slide \d+|presentation\d*|title)?", re.IGNORECASE)


def read_slides(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Slides in their order, the title of each first, its notes last. Pictures, comments and hidden slides are left
    out; a hidden slide is an empty page."""
    composer = Composer()
    with opened(body, "presentation") as archive:
        title = archive.core_title()
        relations = archive.relations(_DECK)
        entries = archive.xml(_DECK).iterfind("{*}sldIdLst/{*}sldId")
        ids = dict.fromkeys(value for entry in entries for value in entry.attrib.values() if value in relations)
        for number, path in enumerate((relations[id_].path for id_ in ids), start=1):
            composer.page()
            slide = archive.xml(path)
            if slide.get("show") not in ("0", "false"):
                _add_slide(_Slide(archive, path), slide, number, composer)
    return composer.parsed(fallback_title if _TOOL_TITLE.fullmatch(title) else title, Format.PPTX)


class _Slide:
    """The parts beside a slide. Those that are missing or damaged are left out: the slide shows without them."""

    def __init__(self, archive: Archive, path: str) -> None:
        self._archive = archive
        self._relations = archive.relations(path)

    def named_by(self, element: _Element) -> Iterator[_Element]:
        return self._read(relation for key, relation in self._relations.items() if key in element.attrib.values())

    def notes(self) -> Iterator[_Element]:
        return self._read(relation for relation in self._relations.values() if relation.kind == "notesSlide")

    def _read(self, relations: Iterable[Relation]) -> Iterator[_Element]:
        for relation in relations:
            try:
                part = self._archive.xml(relation.path)
            except (Rejected, XMLSyntaxError):
                continue
            yield part


def _add_slide(parts: _Slide, slide: _Element, number: int, composer: Composer) -> None:
    for equation, line in emptied_equations(slide):
        equation.tag, equation.text = "t", line
    shapes = list(_shapes(slide))
    titles = [_words(shape) for shape in shapes if _placeholder(shape) in _TITLES]
    composer.heading(" ".join(filter(None, titles)) or f"Slide {number}", level=1)
    for shape in shapes:
        match QName(shape).localname:
            case "sp" if _placeholder(shape) not in _TITLES + _FURNITURE:
                composer.block(_words(shape))
            case "tbl":
                composer.table([_words(cell) for cell in row.iterfind("{*}tc")] for row in shape.iterfind("{*}tr"))
            case "chart":
                for title, rows in map(read_chart, parts.named_by(shape)):
                    composer.block(title)
                    composer.table(rows)
            case "relIds":
                for diagram in parts.named_by(shape):
                    composer.block("\n".join(map(_words, diagram.iter("{*}pt"))))
    for notes in parts.notes():
        words = "\n".join(_words(shape) for shape in _shapes(notes) if _placeholder(shape) == "body")
        composer.block(f"Notes: {words}" if words.strip() else "")


def _shapes(element: _Element) -> Iterator[_Element]:
    """Shapes, tables, charts and diagrams, in the order in which they are drawn. Of alternatives, the first."""
    for child in element.iterchildren("*"):
        match QName(child).localname:
            case "sp" | "tbl" | "chart" | "relIds":
                yield child
            case "AlternateContent":
                yield from _shapes(child[0]) if len(child) else ()
            case "timing" | "transition" | "extLst":
                pass
            case _:
                yield from _shapes(child)


def _placeholder(shape: _Element) -> str | None:
    placeholder = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
    return None if placeholder is None else placeholder.get("type", "obj")


def _words(element: _Element) -> str:
    """Paragraphs, one a line."""
    lines = []
    for paragraph in element.iter("{*}p"):
        pieces = paragraph.iter("{*}t", "{*}br", "{*}tab")
        lines.append("".join((p.text or "") if QName(p).localname == "t" else " " for p in pieces))
    return "\n".join(filter(None, lines))
