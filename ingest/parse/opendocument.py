"""Parser for OpenDocument texts, spreadsheets and presentations."""

from collections.abc import Iterator

from lxml.etree import QName, _Element

from ingest.parse.archive import Check, opened
from ingest.parse.composer import Composer
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed, one_line
from ingest.parse.sniff import Format
from ragkv.errors import Rejected, TooLarge
from ragkv.text import scrub

MAX_CELLS = 8_000_000
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_PRESENTATION = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"
_CLASS = f"{_PRESENTATION}class"
_FURNITURE = ("date-time", "footer", "header", "page-number")
_LEFT_OUT = (
    "tracked-changes", "annotation", "forms", "table-of-content", "illustration-index", "table-index", "user-index",
    "alphabetical-index", "bibliography", "desc", "event-listeners", "object", "sequence-decls", "content-validations",
    "ruby-text",
)  # fmt: skip
_MAX_BLANKS = 100


class _CheckCells(Check):
    max_elements = 2_000_000
    max_xml_bytes = 128 * 1024 * 1024


def read_opendocument(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Headings, paragraphs, lists, notes and tables; slides and sheets are pages. Pictures, comments, deleted text,
    tables of contents, hidden slides and hidden sheets are left out; a hidden slide is an empty page."""
    composer = Composer()
    with opened(body, "OpenDocument file", _CheckCells()) as archive:
        if b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise Rejected("it is protected by a password: remove the password and upload it again")
        document = archive.xml("content.xml")
        content = document.find("{*}body/*")
        if content is None:
            raise Rejected("it has no content: open it in the program that made it and save it again")
        title_element = (
            archive.xml("meta.xml").find(".//{http://purl.org/dc/elements/1.1/}title")
            if "meta.xml" in archive.paths
            else None
        )
    _Reader(composer, _hiding_styles(document)).add_all(content)
    title = one_line(scrub(title_element.text or "")) if title_element is not None else ""
    return composer.parsed(title or fallback_title, _FORMATS.get(QName(content).localname, Format.ODT))


_FORMATS = {"text": Format.ODT, "spreadsheet": Format.ODS, "presentation": Format.ODP}


def _hiding_styles(document: _Element) -> frozenset[str]:
    """Names of the styles that hide sheets or slides."""
    return frozenset(
        style.get(f"{_STYLE}name", "")
        for style in document.iterfind("{*}automatic-styles/{*}style")
        for properties in style
        if properties.get(f"{_TABLE}display") == "false" or properties.get(f"{_PRESENTATION}visibility") == "hidden"
    )


class _Reader:
    """hiding: names of styles that hide a sheet or slide."""

    def __init__(self, composer: Composer, hiding: frozenset[str]) -> None:
        self._composer = composer
        self._hiding = hiding
        self._cells = 0

    def add_all(self, parent: _Element) -> None:
        is_spreadsheet = QName(parent).localname == "spreadsheet"
        for element in parent.iterchildren("*"):
            match QName(element).localname:
                case "h":
                    level = element.get(f"{_TEXT}outline-level", "1")
                    self._composer.heading(_words(element), int(level) if level.isdecimal() and len(level) == 1 else 1)
                case "p":
                    self._composer.block(_words(element))
                case "list":
                    self._composer.block("\n".join(_items(element)))
                case "table" if is_spreadsheet:
                    self._add_sheet(element)
                case "table":
                    self._add_table(element)
                case "page":
                    self._add_slide(element)
                case _ if not _is_left_out(element):
                    self.add_all(element)

    def _add_sheet(self, sheet: _Element) -> None:
        if sheet.get(f"{_TABLE}style-name") not in self._hiding:
            self._composer.page()
            self._composer.heading(sheet.get(f"{_TABLE}name", ""), level=1)
            self._add_table(sheet)

    def _add_table(self, table: _Element) -> None:
        self._composer.table(self._rows(table))
        for drawn in table.iterchildren(f"{_TABLE}shapes"):
            self.add_all(drawn)

    def _add_slide(self, slide: _Element) -> None:
        self._composer.page()
        if slide.get(f"{_DRAW}style-name") in self._hiding:
            return
        frames = slide.findall(f"{_DRAW}frame")
        titles = [frame for frame in frames if frame.get(_CLASS) == "title"]
        title = " ".join(map(_words, titles))
        self._composer.heading(title.strip() or slide.get(f"{_DRAW}name", "Slide"), level=1)
        for child in list(slide):
            if child in titles or child.get(_CLASS) in _FURNITURE:
                slide.remove(child)
        self.add_all(slide)

    def _rows(self, table: _Element) -> Iterator[list[str]]:
        for row in table.iter(f"{_TABLE}table-row"):
            if next(row.iterancestors(f"{_TABLE}table")) is not table:  # a table in a cell is part of the cell's words
                continue
            cells: list[str] = []
            for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                words = _words(cell)
                cells += [words] * self._repeated(cell, "columns", has_words=bool(words))
            repeated = self._repeated(row, "rows", has_words=any(cells))
            self._count(len(cells) * repeated)
            for _ in range(repeated):
                yield cells

    def _repeated(self, element: _Element, what: str, *, has_words: bool) -> int:
        """Number of repetitions of a cell or row. Empty ones, which fill the rest of a sheet, are limited to a few."""
        number = element.get(f"{_TABLE}number-{what}-repeated", "1")
        times = int(number) if number.isdecimal() and len(number) < 9 else 1  # noqa: PLR2004 - more than a sheet has
        times = times if has_words else min(times, _MAX_BLANKS)
        self._count(times)
        return times

    def _count(self, cells: int) -> None:
        self._cells += cells
        if self._cells > MAX_CELLS:
            raise TooLarge(f"its tables have more than {MAX_CELLS:,} cells: split it or save its sheets as CSV")


def _items(list_: _Element, indent: str = "") -> Iterator[str]:
    for item in list_.iterchildren("*"):
        for block in item.iterchildren("*"):
            if block.tag == f"{_TEXT}list":
                yield from _items(block, f"{indent}  ")
            elif words := _words(block):
                yield f"{indent}* {words}"


def _words(element: _Element) -> str:
    """The words of a paragraph, or of several, a line each; a footnote in brackets at its place."""
    pieces: list[str] = []
    _gather(element, pieces)
    lines = "".join(pieces).split("\n")
    return "\n".join(line for line in lines if line.strip()).strip()


def _gather(element: _Element, pieces: list[str]) -> None:
    pieces.append(element.text or "")
    for child in element.iterchildren("*"):
        match QName(child).localname:
            case "s" | "tab":
                pieces.append(" ")
            case "line-break":
                pieces.append("\n")
            case "note":
                words = "\n".join(map(_words, child.iterchildren(f"{_TEXT}note-body")))
                pieces.append(f" [{' '.join(words.split())}]")
            case "p" | "h":  # in a text box
                pieces.append("\n")
                _gather(child, pieces)
                pieces.append("\n")
            case _ if not _is_left_out(child):
                _gather(child, pieces)
        pieces.append(child.tail or "")


def _is_left_out(element: _Element) -> bool:
    """A `title` is a field of a text, or the alternative text of a drawing."""
    name = QName(element).localname
    return name in _LEFT_OUT or (name == "title" and element.tag != f"{_TEXT}title")
