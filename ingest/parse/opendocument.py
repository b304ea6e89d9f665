"""Parser for OpenDocument texts, spreadsheets and presentations."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from lxml.etree import QName, _Element

from ingest.parse.archive import Archive, CheckPages, joined, opened, title_in
from ingest.parse.composer import FIELD, Composer, without_fields
from ingest.parse.formulas import write_formulas
from ingest.parse.marks import SIGNS, Run, text_of
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.pictures import described
from ingest.parse.sniff import PROTECTED, Format
from ingest.parse.spans import MAX_CELLS, Cell, Grid, span_of
from ragkv.errors import Rejected, TooLarge

_URN = "urn:oasis:names:tc:opendocument:xmlns"
_TABLE, _TEXT, _DRAW, _STYLE, _PRESENTATION = (
    f"{{{_URN}:{name}:1.0}}" for name in ("table", "text", "drawing", "style", "presentation")
)
_XLINK = "{http://www.w3.org/1999/xlink}"
_MAX_PARENTS = 20
_FAMILIES = {"span": "text", "a": "text", "p": "paragraph", "h": "paragraph", "page": "drawing-page"}
"""By the elements that have their styles; of others, their own names."""
_LINES = (f"{_STYLE}text-line-through-style", f"{_STYLE}text-line-through-type")
_POSITION = f"{_STYLE}text-position"
_HIDING = {f"{_TEXT}display": "none", f"{_TABLE}display": "false", f"{_PRESENTATION}visibility": "hidden"}
_READ = (*_LINES, _POSITION, *_HIDING)
_CLASS = f"{_PRESENTATION}class"
_FURNITURE = ("date-time", "footer", "header", "page-number")
_MARGINS = ("header", "footer", "header-left", "footer-left", "header-first", "footer-first")
_FIELDS = (
    "page-number", "page-count", "page-continuation", "date", "time", "file-name", "sheet-name", "print-date",
    "print-time", "creation-date", "creation-time", "modification-date", "modification-time",
)  # fmt: skip
_LEFT_OUT = (
    "tracked-changes", "annotation", "forms", "table-of-content", "illustration-index", "table-index", "user-index",
    "alphabetical-index", "bibliography", "desc", "event-listeners", "object", "sequence-decls", "content-validations",
    "ruby-text",
)  # fmt: skip
_FORMATS = {"text": Format.ODT, "spreadsheet": Format.ODS, "presentation": Format.ODP}
_INVISIBLE = ("collapse", "filter")
_MAX_BLANKS = 100


class _CheckCells(CheckPages):
    max_elements = 2_000_000
    max_xml_bytes = 128 * 1024 * 1024


def read_opendocument(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Headings, paragraphs, lists, notes, tables and descriptions of pictures; slides and sheets are pages; words of
    page headers that stand there alone come last. Comments, deleted text, tables of contents and all that is hidden are
    left out; a hidden slide is an empty page."""
    composer = Composer()
    with opened(body, "OpenDocument file", _CheckCells()) as archive:
        if b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise Rejected(PROTECTED)
        document = archive.xml("content.xml")
        content = document.find("{*}body/*")
        if content is None:
            raise Rejected("it has no content: open it in the program that made it and save it again")
        title = title_in(archive.xml("meta.xml")) if "meta.xml" in archive.paths else ""
        styles = archive.xml("styles.xml") if "styles.xml" in archive.paths else None
        for image in document.iter(f"{_DRAW}image"):
            frame = image.getparent()
            image.text = described(frame.findtext("{*}desc") or frame.findtext("{*}title"))
        _write_formulas(document, archive)
    parts = [document] if styles is None else [styles, document]
    reader = _Reader(composer, _Styles(parts), omissions)
    reader.add_all(content)
    reader.add_margins(parts)
    return composer.parsed(title or fallback_title, _FORMATS.get(QName(content).localname, Format.ODT))


def _write_formulas(document: _Element, archive: Archive) -> None:
    """Write the line of each formula in its place, instead of a picture of it."""

    @cache
    def formula(path: str) -> str:
        root = archive.xml(path) if path in archive.paths else None
        if root is None or QName(root).localname != "math":
            return ""
        write_formulas(root)
        return str(root.text or "")

    for reference in list(document.iter(f"{_DRAW}object")):
        if line := formula(joined(reference.get(f"{_XLINK}href", ""), "content.xml")):
            for image in reference.getparent().iterchildren(f"{_DRAW}image"):
                image.text = None
            reference.tag, reference.text = f"{_DRAW}image", line


@dataclass(frozen=True, slots=True)
class _Look:
    """sign: of raised or lowered text, one of `marks.SIGNS`."""

    is_hidden: bool = False
    is_struck: bool = False
    sign: str = ""


class _Styles:
    """The styles of the parts of a file, by family and name. One has the properties of its parents."""

    def __init__(self, parts: Iterable[_Element]) -> None:
        self._styles = {
            (style.get(f"{_STYLE}family", ""), style.get(f"{_STYLE}name", "")): style
            for part in parts
            for style in part.iterfind("{*}*/{*}style")
        }
        self._properties = cache(self._inherited)

    def look(self, element: _Element, inherited: _Look) -> _Look:
        """The look of an element within another."""
        namespace, _, name = str(element.tag).rpartition("}")
        is_hidden = inherited.is_hidden or self._is_hidden(element, name)
        style = element.get(f"{namespace}}}style-name")
        if style is not None and (properties := self._properties(_FAMILIES.get(name, name), style)):
            is_hidden |= any(properties.get(key) == value for key, value in _HIDING.items())
            lines = [properties[line] for line in _LINES if line in properties]
            is_struck = any(line != "none" for line in lines) if lines else inherited.is_struck
            sign = inherited.sign
            if _POSITION in properties:  # such as `super 58%` or `-33% 58%`
                height = properties[_POSITION].partition(" ")[0]
                is_raised = height.strip("-0.%") != ""
                sign = SIGNS.get(height) or SIGNS["sub" if height.startswith("-") else "sup"] * is_raised
            return _Look(is_hidden, is_struck, sign)
        return _Look(is_hidden, inherited.is_struck, inherited.sign) if is_hidden else inherited

    @staticmethod
    def _is_hidden(element: _Element, name: str) -> bool:
        """Whether an element says that it is hidden, whatever its style."""
        if name in ("p", "h"):
            return len(element) > 0 and any(
                mark.get(f"{_TEXT}is-hidden") == "true" for mark in element.iterchildren(f"{_TEXT}hidden-paragraph")
            )
        display = element.get(f"{_TEXT}display")
        is_hidden = element.get(f"{_TEXT}is-hidden") == "true" and (display == "condition" or name == "hidden-text")
        return is_hidden or "none" in (display, element.get(f"{_DRAW}display"))

    def _inherited(self, family: str, name: str) -> dict[str, str]:
        chain: list[_Element] = []
        while len(chain) < _MAX_PARENTS and (style := self._styles.get((family, name))) is not None:
            chain.append(style)
            name = style.get(f"{_STYLE}parent-style-name", "")
        properties: dict[str, str] = {}
        for style in reversed(chain):
            for group in style.iterchildren("*"):
                properties.update((str(key), str(value)) for key, value in group.attrib.items() if key in _READ)
        return properties


class _Reader:
    def __init__(self, composer: Composer, styles: _Styles, omissions: Omissions) -> None:
        self._composer = composer
        self._styles = styles
        self._omissions = omissions
        self._margins: list[str] = []
        self._cells = 0

    def add_all(self, parent: _Element) -> None:
        is_spreadsheet = QName(parent).localname == "spreadsheet"
        for element in parent.iterchildren("*"):
            match QName(element).localname:
                case "page":
                    self._add_slide(element)
                case _ if self._leaves_out_hidden(element):
                    pass
                case "h":
                    level = element.get(f"{_TEXT}outline-level", "1")
                    is_level = level.isdecimal() and len(level) == 1
                    self._composer.heading(self._words(element), int(level) if is_level else 1)
                case "p" | "image":
                    self._composer.block(self._words(element))
                case "list":
                    self._composer.block("\n".join(self._items(element)))
                case "table":
                    self._add_table(element, is_sheet=is_spreadsheet)
                case _ if not _is_left_out(element):
                    self.add_all(element)

    def add_margins(self, parts: list[_Element]) -> None:
        """Words of the headers and footers of pages, part by part."""
        self._margins += (footer.text or "" for part in parts for footer in part.iter(f"{_PRESENTATION}footer-decl"))
        for master in (master for part in parts for master in part.iterfind("{*}master-styles/{*}master-page")):
            for margin in master.iterchildren(*(f"{_STYLE}{name}" for name in _MARGINS)):
                for field in list(margin.iter(*(f"{_TEXT}{name}" for name in _FIELDS))):
                    field.text = FIELD
                for tab in margin.iter(f"{_TEXT}tab"):
                    tab.tag = f"{_TEXT}line-break"
                if margin.get(f"{_STYLE}display") != "false":
                    self._margins += self._words(margin).split("\n")
        self._composer.margins(filter(None, map(without_fields, self._margins)))

    def _leaves_out_hidden(self, element: _Element) -> bool:
        """Whether an element is hidden and not read. Its words are counted."""
        is_hidden = self._styles.look(element, _Look()).is_hidden
        return is_hidden and self._omissions.leaves_out(self._words(element))

    def _add_table(self, table: _Element, *, is_sheet: bool) -> None:
        if is_sheet:
            self._composer.page()
            self._composer.heading(table.get(f"{_TABLE}name", ""), level=1)
        self._composer.table(self._rows(table))
        for drawn in table.iterchildren(f"{_TABLE}shapes"):
            self.add_all(drawn)

    def _add_slide(self, slide: _Element) -> None:
        self._composer.page()
        if self._leaves_out_hidden(slide):
            return
        frames = slide.findall(f"{_DRAW}frame")
        titles = [frame for frame in frames if frame.get(_CLASS) == "title"]
        title = " ".join(map(self._words, titles))
        self._composer.heading(title.strip() or slide.get(f"{_DRAW}name", "Slide"), level=1)
        for child in list(slide):
            if child.get(_CLASS) in ("footer", "header"):
                self._margins += self._words(child).split("\n")
            if child in titles or child.get(_CLASS) in _FURNITURE:
                slide.remove(child)
        self.add_all(slide)

    def _rows(self, table: _Element) -> Iterator[list[str]]:
        grid = Grid(self._omissions, self._hidden_columns(table))
        for row in table.iter(f"{_TABLE}table-row"):
            if next(row.iterancestors(f"{_TABLE}table")) is not table:  # a table in a cell is part of the cell's words
                continue
            items: list[str | Cell] = []
            has_words = False
            for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                words = self._words(cell)
                spans = [span_of(cell, f"{_TABLE}number-{what}-spanned") for what in ("rows", "columns")]
                item = words if spans == [1, 1] else Cell(words, *spans)
                items += [item] * self._repeated(cell, "columns", has_words=bool(words))
                has_words |= bool(words)
            repeated = self._repeated(row, "rows", has_words=has_words)
            self._count(len(items) * repeated)
            for _ in range(repeated):
                yield from grid.row(items.copy(), is_hidden=row.get(f"{_TABLE}visibility") in _INVISIBLE)

    def _hidden_columns(self, table: _Element) -> set[int]:
        hidden: set[int] = set()
        number = 0
        for column in table.iter(f"{_TABLE}table-column"):
            if next(column.iterancestors(f"{_TABLE}table")) is table:
                repeated = span_of(column, f"{_TABLE}number-columns-repeated")
                if column.get(f"{_TABLE}visibility") in _INVISIBLE:
                    hidden.update(range(number, number + repeated))
                number += repeated
        return hidden

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

    def _items(self, list_: _Element, indent: str = "") -> Iterator[str]:
        for item in list_.iterchildren("*"):
            for block in item.iterchildren("*"):
                if block.tag == f"{_TEXT}list":
                    yield from self._items(block, f"{indent}  ")
                elif not self._leaves_out_hidden(block) and (words := self._words(block)):
                    yield f"{indent}* {words}"

    def _words(self, element: _Element) -> str:
        """The words of a paragraph, or of several, a line each; a footnote in brackets at its place."""
        if not len(element) and not element.text:
            return ""
        runs: list[Run] = []
        self._gather(element, self._styles.look(element, _Look()), runs)
        lines = text_of(runs).split("\n")
        return "\n".join(line for line in lines if line.strip()).strip()

    def _gather(self, element: _Element, look: _Look, runs: list[Run]) -> None:
        if element.text:
            runs.append(Run(element.text, look.sign, look.is_struck))
        for child in element.iterchildren("*"):
            name = QName(child).localname
            match name:
                case "s" | "tab":
                    runs.append(Run(" ", look.sign, look.is_struck))
                case "line-break":
                    runs.append(Run("\n", look.sign, look.is_struck))
                case "note":
                    words = "\n".join(map(self._words, child.iterchildren(f"{_TEXT}note-body")))
                    runs.append(Run(f" [{' '.join(words.split())}]"))
                case _ if not _is_left_out(child):
                    self._gather_child(child, look, runs, end="\n" if name in ("p", "h") else "")
            if child.tail:
                runs.append(Run(child.tail, look.sign, look.is_struck))

    def _gather_child(self, child: _Element, look: _Look, runs: list[Run], end: str) -> None:
        """Gather the words of an element in another, if they are read; `end`: before and after a paragraph."""
        shown = self._styles.look(child, look)
        runs.append(Run(end))
        start = len(runs)
        self._gather(child, shown, runs)
        if shown.is_hidden and not look.is_hidden:
            words = self._omissions.hidden(text_of(runs[start:]))
            runs[start:] = [Run(words)]
        runs.append(Run(end))


def _is_left_out(element: _Element) -> bool:
    """A `title` is a field of a text, or the alternative text of a drawing."""
    name = QName(element).localname
    return name in _LEFT_OUT or (name == "title" and element.tag != f"{_TEXT}title")
