"""Parser for Excel workbooks: each visible sheet is a page of rows with their column labels.

Parts are read as streams: no tree of a large sheet is built, and no sheet is held in memory as a whole.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import IO
from xml.parsers import expat
from zipfile import ZipFile, ZipInfo

from ingest.parse.archive import Archive, Check, damaged, opened
from ingest.parse.composer import FIELD, Composer, without_fields
from ingest.parse.marks import SIGNS, Run, struck, text_of
from ingest.parse.number_format import BUILT_IN, GENERAL, TEXT, NumberFormat, general
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.rows import shortened
from ingest.parse.sniff import Format
from ingest.parse.spans import Cell, Grid

_BOOK = "xl/workbook.xml"
_PIECE = 1 << 16
_MAX_COLUMNS, _MAX_MERGED = 16_384, 200_000
_DIGITS = "0123456789"
_LETTERS = re.compile(r"[A-Za-z]{1,3}")
_RANGE = re.compile(r"([A-Za-z]{1,3})([0-9]{1,7}):([A-Za-z]{1,3})([0-9]{1,7})")
_MAX_DIGITS, _MAX_SHOWN = 15, 1 << 16
_PLAIN = (GENERAL, TEXT, "")
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_OFF = ("0", "false")
_HIDDEN_STATES = ("hidden", "veryHidden")
_MARGINS = ("oddHeader", "evenHeader", "firstHeader", "oddFooter", "evenFooter", "firstFooter")
_MARGIN_CODE = re.compile(
    r'&(?:(&)|([LCR])|([PNDTZFAG])|"[^"]*"|K[0-9A-F]{6}|K[0-9]{2}[+-][0-9]{3}|[0-9]+|.)', re.IGNORECASE
)
_Span = tuple[int, int, int]


def read_workbook(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Cells as they are shown, in their number formats; dates that each machine shows in its own order in ISO 8601.
    Formulas by their last results, or as formulas where none is stored. Hidden sheets, rows and columns, empty sheets,
    charts and comments are left out."""
    composer, check = Composer(), _CheckMerged()
    with opened(body, "workbook", check) as archive:
        title = archive.core_title()
        try:
            _compose(archive, check.merged, composer, omissions)
        except (expat.ExpatError, LookupError, ValueError):
            raise damaged("workbook") from None
    return composer.parsed(title or fallback_title, Format.XLSX)


class _CheckMerged(Check):
    """Collects the merged ranges of each part, which stand behind its cells: by their first rows, their first columns,
    numbers of rows and of columns."""

    max_xml_bytes = 256 * 1024 * 1024
    max_elements = 6_000_000

    def __init__(self) -> None:
        super().__init__()
        self.merged: dict[str, dict[int, list[_Span]]] = {}
        self._num_merged = 0

    def part(self, archive: ZipFile, entry: ZipInfo) -> None:
        self._in_part = self.merged.setdefault(entry.filename, {})
        super().part(archive, entry)

    def element(self, name: str, attributes: Mapping[str, str]) -> None:
        super().element(name, attributes)
        if name.endswith("mergeCell") and self._num_merged < _MAX_MERGED:
            self._num_merged += 1
            if match := _RANGE.fullmatch(attributes.get("ref", "")):
                left, top, right, bottom = _column(match[1]), int(match[2]), _column(match[3]), int(match[4])
                if left <= right and 0 < top <= bottom:
                    self._in_part.setdefault(top, []).append((left, bottom - top + 1, right - left + 1))


def _compose(
    archive: Archive, merged: Mapping[str, dict[int, list[_Span]]], composer: Composer, omissions: Omissions
) -> None:
    roots = (relation.path for relation in archive.relations("").values() if relation.kind == "officeDocument")
    book_path = next(roots, _BOOK)
    book, relations = archive.xml(book_path), archive.relations(book_path)
    paths = {relation.kind: relation.path for relation in relations.values()}
    properties = book.find("{*}workbookPr")
    is_1904 = properties is not None and properties.get("date1904", "0") not in _OFF
    strings, styles = _Strings(), _Styles()
    for kind, handler in (("sharedStrings", strings), ("styles", styles)):
        path = paths.get(kind, f"xl/{kind}.xml")
        if path in archive.paths:
            for _ in _read(archive.stream(path), handler):
                pass
    looks = styles.looks(omissions, is_1904=is_1904)
    margins: list[str] = []
    for entry in book.iterfind("{*}sheets/{*}sheet"):
        relation = next((relations[value] for value in entry.attrib.values() if value in relations), None)
        if relation is None or relation.kind != "worksheet":
            continue
        sheet = _Sheet(strings.texts, looks)
        is_hidden = entry.get("state") in _HIDDEN_STATES
        rows = _rows(
            archive.stream(relation.path), sheet, merged.get(relation.path, {}), omissions, is_hidden=is_hidden
        )
        if (start := next(filter(any, rows), None)) is not None:
            composer.page()
            composer.heading(entry.get("name", ""), level=1)
            composer.table(chain([start], rows))
            margins += sheet.margins
    composer.margins(margins)


def _rows(
    part: IO[bytes], sheet: "_Sheet", merged: Mapping[int, Sequence[_Span]], omissions: Omissions, *, is_hidden: bool
) -> Iterator[list[str]]:
    """The rows of a sheet as they are shown."""
    grid: Grid | None = None
    number = 0
    for _ in _read(part, sheet):
        for row in sheet.rows:
            grid = grid or Grid(omissions, sheet.hidden_columns, is_hidden=is_hidden)
            yield from grid.skip(row.number - number - 1)
            number = row.number
            items: list[str | Cell] = [""] * (max(row.words, default=-1) + 1)
            for column, words in row.words.items():
                items[column] = words
            for column, num_rows, num_columns in merged.get(number, ()):
                if column < len(items):
                    items[column] = Cell(str(items[column]), num_rows, num_columns)
            yield from grid.row(items, is_hidden=row.is_hidden)
        sheet.rows.clear()


def _read(part: IO[bytes], handler: "_Strings | _Styles | _Sheet") -> Iterator[None]:
    """Read a part piece by piece: after each, the handler has what stands in it."""
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Handle the first element, and call others without its prefix."""
        prefix = name[: name.find(":") + 1]
        if prefix:
            parser.StartElementHandler = lambda name, attributes: handler.start(name.removeprefix(prefix), attributes)
            parser.EndElementHandler = lambda name: handler.end(name.removeprefix(prefix))
        else:
            parser.StartElementHandler, parser.EndElementHandler = handler.start, handler.end
        handler.start(name.removeprefix(prefix), attributes)

    parser.StartElementHandler = start
    parser.CharacterDataHandler = handler.text.append
    with part:
        while piece := part.read(_PIECE):
            parser.Parse(piece)
            yield
    parser.Parse(b"", True)
    yield


class _Strings:
    """Texts of cells, with marks for what is raised or struck in them."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.texts: list[str] = []
        self._runs: list[Run] = []
        self._is_phonetic = self._is_struck = False
        self._sign = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "t":
                self.text.clear()
            case "r":
                self._is_struck, self._sign = False, ""
            case "strike":
                self._is_struck = attributes.get("val", "1") not in _OFF
            case "vertAlign":
                self._sign = SIGNS.get(attributes.get("val", ""), "")
            case "rPh":
                self._is_phonetic = True

    def end(self, name: str) -> None:
        match name:
            case "t" if not self._is_phonetic:
                self._runs.append(Run(_unescaped("".join(self.text)), self._sign, self._is_struck))
            case "rPh":
                self._is_phonetic = False
            case "r":
                self._is_struck, self._sign = False, ""
            case "si" | "is":
                self.texts.append(text_of(self._runs))
                self._runs.clear()


class _Styles:
    """Number formats of the cells of each style, and whether they are struck."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self._codes: dict[str, str] = {}
        self._is_struck: list[bool] = []
        self._styles: list[tuple[str, str]] = []
        self._list = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.text.clear()
        match self._list, name:
            case _, "numFmts" | "fonts" | "cellXfs":
                self._list = name
            case "numFmts", "numFmt":
                self._codes[attributes.get("numFmtId", "")] = attributes.get("formatCode", "")
            case "fonts", "font":
                self._is_struck.append(False)
            case "fonts", "strike" if self._is_struck:
                self._is_struck[-1] = attributes.get("val", "1") not in _OFF
            case "cellXfs", "xf":
                self._styles.append((attributes.get("numFmtId", "0"), attributes.get("fontId", "0")))

    def end(self, name: str) -> None:
        if name == self._list:
            self._list = ""

    def looks(self, omissions: Omissions, *, is_1904: bool) -> "_Looks":
        struck_fonts = {str(font) for font, is_struck in enumerate(self._is_struck) if is_struck}
        built_in = {str(number): code for number, code in BUILT_IN.items()}
        codes = [self._codes.get(number, built_in.get(number, GENERAL)) for number, _ in self._styles]
        formats = {code: NumberFormat(code, is_1904=is_1904) for code in {GENERAL, *codes} if code not in _PLAIN}
        struck_styles = {str(style) for style, (_, font) in enumerate(self._styles) if font in struck_fonts}
        return _Looks({str(style): formats.get(code) for style, code in enumerate(codes)}, struck_styles, omissions)


class _Looks:
    """Shows the content of cells by their styles. A format that shows nothing hides it, but for zeros."""

    def __init__(
        self, formats: Mapping[str, NumberFormat | None], struck: Container[str], omissions: Omissions
    ) -> None:
        self._formats, self._struck, self._omissions = formats, struck, omissions
        self.number = lru_cache(maxsize=_MAX_SHOWN)(self._number)

    def text(self, style: str, stored: str) -> str:
        format_ = self._formats.get(style)
        shown = stored if format_ is None else format_.text(stored) or self._omissions.hidden(stored)
        return struck(shown) if style in self._struck else shown

    def _number(self, style: str, stored: str) -> str:
        """A stored number as it is shown."""
        value, format_ = float(stored), self._formats.get(style)
        if format_ is None:
            shown = general(value)
        else:
            shown = format_.number(value) or (self._omissions.hidden(general(value)) if value else "")
        return struck(shown) if style in self._struck else shown


@dataclass(slots=True)
class _Row:
    """A row of a sheet. number: counted from 1. words: by column, counted from 0."""

    number: int
    is_hidden: bool
    words: dict[int, str] = field(default_factory=dict)


class _Sheet:
    """The rows that were read from a sheet and not taken out of `rows` yet, its hidden columns and page headers."""

    def __init__(self, strings: Sequence[str], looks: _Looks) -> None:
        self.text: list[str] = []
        self.rows: list[_Row] = []
        self.hidden_columns: set[int] = set()
        self.margins: list[str] = []
        self._strings, self._looks = strings, looks
        self._inline = _Strings()
        self._inline.text = self.text
        self._row = _Row(0, is_hidden=False)
        self._number = 0
        self._column = -1
        self._kind = self._style = self._value = ""
        self._formula: str | None = None

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "c":
                self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "0")
                column = _column(attributes.get("r", "").rstrip(_DIGITS))
                self._column = column if column >= 0 else self._column + 1
                self._value, self._formula = "", None
            case "v" | "f":
                self.text.clear()
            case "row":
                number = attributes.get("r", "")
                is_number = number.isdecimal() and len(number) <= _MAX_DIGITS
                self._number = max(int(number) if is_number else 0, self._number + 1)
                is_hidden = attributes.get("hidden", "0") not in _OFF or attributes.get("ht") == "0"
                self._row = _Row(self._number, is_hidden)
                self._column = -1
            case "col" if attributes.get("hidden", "0") not in _OFF or attributes.get("width") == "0":
                start, end = attributes.get("min", ""), attributes.get("max", "")
                if start.isdecimal() and end.isdecimal() and len(start + end) <= _MAX_DIGITS:
                    self.hidden_columns.update(range(int(start) - 1, min(int(end), _MAX_COLUMNS)))
            case _ if name in _MARGINS:
                self.text.clear()
            case _:
                self._inline.start(name, attributes)

    def end(self, name: str) -> None:
        match name:
            case "v":
                self._value = "".join(self.text)
            case "c":
                if (words := self._words()) and self._column < _MAX_COLUMNS:
                    self._row.words[self._column] = words
            case "f":
                self._formula = "".join(self.text)
            case "row":
                self.rows.append(self._row)
                self.text.clear()
            case _ if name in _MARGINS:
                parts = _MARGIN_CODE.sub(
                    lambda code: code[1] or (code[2] and "\n") or (code[3] and FIELD) or "", "".join(self.text)
                )
                self.margins += filter(None, map(without_fields, parts.split("\n")))  # left, centre, right
            case _:
                self._inline.end(name)

    def _words(self) -> str:
        """The words of the cell that has ended."""
        value, kind, looks = self._value, self._kind, self._looks
        if kind == "s":
            return looks.text(self._style, self._strings[int(value)]) if value else ""
        if kind == "inlineStr":
            return looks.text(self._style, self._inline.texts.pop()) if self._inline.texts else ""
        if not value:
            is_open = self._formula is not None and kind != "str"
            return f"={shortened(self._formula or '')} (not calculated)" if is_open else ""
        if kind == "n":
            return looks.number(self._style, value)
        if kind == "b":
            return looks.text(self._style, "TRUE" if value == "1" else "FALSE")
        return looks.text(self._style, value.replace("T", " ", 1) if kind == "d" else _unescaped(value))


@lru_cache(maxsize=_MAX_COLUMNS)
def _column(letters: str) -> int:
    """The number of a column, counted from 0; -1 for what is none."""
    number = 0
    for letter in letters.upper() if _LETTERS.fullmatch(letters) else "":
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _unescaped(text: str) -> str:
    """Text whose control characters are written as `_x000D_`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text
