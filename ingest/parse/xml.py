"""Parser for any XML: running text as paragraphs, titles as headings, tables as rows, the rest as lines `name:
value`."""

import io
import re
from collections.abc import Iterator, Mapping
from html import unescape
from itertools import groupby

from lxml import etree
from lxml.etree import QName, _Element

from ingest.parse.archive import CheckPages, parse_xml
from ingest.parse.composer import Composer
from ingest.parse.encoded import without_encoded
from ingest.parse.formulas import write_formulas
from ingest.parse.html import parse_source
from ingest.parse.marks import sign_raised_numbers
from ingest.parse.parsed import Omissions, Parsed, one_line
from ingest.parse.sniff import Format
from ingest.parse.spans import Cell, Columns, header_of, is_title, span_of, words_of
from ragkv.errors import Rejected
from ragkv.text import scrub

_TITLES = ("title", "head", "heading", "article-title")
_RUNNING = ("p", "para", "simpara")  # attributes of these are about how they look, or where they are
_PLACES = ("lb", "pb", "cb", "gb", "milestone", "anchor")  # where a line or a page begins, as in TEI
_PARAGRAPHS = (*_RUNNING, "li", "item", "description", "text", "abstract", "body")
_TABLES, _ROWS, _CELLS = ("table", "tgroup"), ("tr", "row"), ("td", "th", "entry")
_OF_FEEDS = ("description", "summary", "content", "encoded")
_HTML = re.compile(r"</(?:p|div|span|a|b|i|em|strong|ul|ol|li|h[1-6])>|<(?:br|img)\b[^<>]*>", re.IGNORECASE)
"""In the text of an element of RSS or Atom that holds a page or a part of one."""
_VERBATIM = ("programlisting", "screen", "literallayout", "codeblock", "preformat", "pre", "code")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_TABLE_TITLES = ("{*}title", "{*}caption", "{*}desc")
_TITLE_PATHS = (
    "{*}title",
    "{*}channel/{*}title",
    "{*}info/{*}title",
    "{*}front//{*}article-title",
    "{*}teiHeader//{*}title",
)
_BLOCKS = tuple(f"{{*}}{name}" for name in (*_TITLES, *_RUNNING, "li", "item", *_TABLES, *_VERBATIM[:-1]))
_OWN_LINES = {*_TITLES, *_PARAGRAPHS, *_TABLES, *_ROWS, *_CELLS, "br", "break"}
_MATHML = "http://www.w3.org/1998/Math/MathML"
_NOT_INLINE = (*_BLOCKS, *(f"{{*}}{name}" for name in (*_PARAGRAPHS, *_ROWS, *_CELLS)))


def read_xml(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Text and attributes in the document's order. Raises Rejected for one that declares entities, is nested too deeply
    or not well-formed."""
    CheckPages().stream(io.BytesIO(body))
    try:
        root = parse_xml(body)
    except etree.XMLSyntaxError as error:
        raise Rejected(f"it is not well-formed XML ({error.msg}): save it again, or as plain text") from None
    for element in root.iter("*"):
        for name, value in element.attrib.items():
            element.set(name, without_encoded(value, omissions))
        element.text = element.text and without_encoded(element.text, omissions)
        element.tail = element.tail and without_encoded(element.tail, omissions)
    write_formulas(root)
    sign_raised_numbers(root, _OWN_LINES)
    composer = Composer()
    reader = _Reader(composer, omissions)
    reader.add(root, 1)
    reader.flush()
    title_text = next(filter(None, (_words(title) for path in _TITLE_PATHS for title in root.iterfind(path))), "")
    return composer.parsed(one_line(scrub(title_text)) or fallback_title, Format.XML)


class _Reader:
    def __init__(self, composer: Composer, omissions: Omissions) -> None:
        self._composer, self._omissions = composer, omissions
        self._lines: list[str] = []

    def flush(self) -> None:
        """End a paragraph of lines."""
        self._composer.block("\n".join(self._lines))
        self._lines.clear()

    def add(self, element: _Element, level: int) -> None:
        name = QName(element).localname
        children = list(element.iterchildren("*"))
        if name in _TABLES and next(element.iter(*(f"{{*}}{row}" for row in _ROWS)), None) is not None:
            self.flush()
            for title in element.iterchildren(*_TABLE_TITLES):
                self._composer.block(_words(title))
            self._add_table(element)
        elif (name in _VERBATIM or (not children and element.get(_SPACE) == "preserve")) and "\n" in (
            lines := "".join(_pieces(element, with_attributes=False)).strip("\n")
        ):
            self.flush()
            self._composer.block(lines)
        elif not children and name in _OF_FEEDS and _HTML.search(element.text or ""):
            self.flush()
            self._composer.block(parse_source(element.text, "", Format.HTML, self._omissions).text)
        elif children and (not _has_words(element) or next(element.iterdescendants(*_BLOCKS), None) is not None):
            self._add_inside(element, level)
        elif (words := _words(element)) and name in _TITLES:
            self.flush()
            self._composer.heading(words, level)
        elif children or name in _PARAGRAPHS:
            self.flush()
            attributes = [] if name in _RUNNING else [*_attributes(element)]
            described = ", ".join(filter(None, [*attributes, _words(element, with_attributes=True)]))
            self._composer.block(f"{name}: {described}" if attributes else described)
        elif described := ", ".join(filter(None, [*_attributes(element), words])):
            self._lines.append(f"{name}: {described}")

    def _add_table(self, table: _Element) -> None:
        """Add its groups, as tables of their own from one with a header on."""
        rows: list[list[str]] = []
        for group in list(table.iterchildren("{*}tgroup")) or [table]:
            if group.find("{*}thead") is not None:
                self._composer.table(rows)
                rows = []
            rows += [[], *_rows(group)]  # ends the rows of the group before
        self._composer.table(rows)

    def _add_inside(self, element: _Element, level: int) -> None:
        """Elements that hold others end the paragraph before them. Those beside a title are a level below it, and below
        it in the text, too: a record may name its author first, which else were that of the record before."""
        self.flush()
        is_running = _has_words(element)
        title = None if is_running else _title_of(element)
        if title is not None:
            self.add(title, level)
        if attributes := ", ".join(_attributes(element)):
            self._lines.append(f"{QName(element).localname}: {attributes}")
        below = level if title is None else level + 1
        running = [element.text or ""]
        for child in element:
            if child.tag is etree.Entity or (is_running and _is_inline(child)):
                running += _pieces(child, with_attributes=True)
            elif child is not title:
                self._add_running(running)
                is_title = QName(child).localname in _TITLES
                self.add(child, level if is_title else below)
                below = level + 1 if is_title else below
            running.append(child.tail or "")
        self._add_running(running)
        self.flush()

    def _add_running(self, pieces: list[str]) -> None:
        """Add words that stand beside blocks, with their inline markup, and clear them."""
        if words := " ".join("".join(pieces).split()):
            self.flush()
            self._composer.block(words)
        pieces.clear()


def _title_of(element: _Element) -> _Element | None:
    """The first title among the children, unless paragraphs or tables stand before it."""
    for child in element.iterchildren("*"):
        if QName(child).localname in _TITLES:
            return child
        if next(child.iter(*_NOT_INLINE), None) is not None:
            return None
    return None


def _words(element: _Element, *, with_attributes: bool = False) -> str:
    return " ".join("".join(_pieces(element, with_attributes=with_attributes)).split())


def _pieces(element: _Element, *, with_attributes: bool) -> Iterator[str]:
    """The text of an element or an entity; entities are read as those of HTML. A blank keeps apart what does not share
    its line. with_attributes: elements inside that are empty are read as their attributes."""
    if element.tag is etree.Entity:
        yield unescape(element.text)
        return
    around = " " if QName(element).localname in _OWN_LINES else ""
    yield around + (element.text or "")
    for child in element:
        yield from _pieces(child, with_attributes=with_attributes)
        if with_attributes and _is_empty_value(child) and (attributes := ", ".join(_attributes(child))):
            yield f" {QName(child).localname}: {attributes} "
        yield child.tail or ""
    yield around


def _is_empty_value(element: _Element) -> bool:
    """Whether an element is empty and neither a break, a mark of a place nor a part of a formula."""
    if element.tag is etree.Entity or len(element) or (element.text or "").strip():
        return False
    name = QName(element)
    return name.localname not in _OWN_LINES and name.localname not in _PLACES and name.namespace != _MATHML


def _has_words(element: _Element) -> bool:
    """Whether words stand directly in the element, between others."""
    return any(words and words.strip() for words in (element.text, *(child.tail for child in element)))


def _is_inline(element: _Element) -> bool:
    """Whether an element is markup within a sentence: no block, no record, and not attributes alone."""
    if next(element.iter(*_NOT_INLINE), None) is not None:
        return False
    if not _words(element):
        return not any(any(_attributes(descendant)) for descendant in element.iter("*"))
    for inside in element.iterdescendants("*"):
        following = inside.getnext()
        touches_next = following is not None and following.tag is not etree.Entity and not (inside.tail or "").strip()
        if touches_next and QName(inside).namespace != _MATHML:  # as in a record; signs of a formula do
            return False
    return True


def _attributes(element: _Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        if not name.startswith("{") and value.strip():
            yield f"{name}={' '.join(value.split())}"


def _rows(group: _Element) -> Iterator[list[str]]:
    """The rows of a table or of a group in it, without those of tables inside its cells; several rows of headers are
    one."""
    names = [column.get("colname") for column in group.iterchildren("{*}colspec")]
    numbers = {name: number for number, name in enumerate(names) if name}
    columns = Columns()
    for is_head, rows in groupby(_own_rows(group), key=lambda row: QName(row.getparent()).localname == "thead"):
        placed = [
            columns.place(_cell(cell, numbers) for cell in row.iterchildren(*(f"{{*}}{name}" for name in _CELLS)))
            for row in rows
        ]
        if is_head:
            yield from (words_of(row) for row in placed if is_title(row))
            yield header_of(placed)
        else:
            yield from map(words_of, placed)


def _own_rows(table: _Element) -> Iterator[_Element]:
    for child in table.iterchildren("*"):
        name = QName(child).localname
        if name in _ROWS:
            yield child
        elif name not in _CELLS:
            yield from _own_rows(child)


def _cell(cell: _Element, numbers: Mapping[str, int]) -> Cell:
    """A cell with its spans, as in HTML or, by the names of columns, in CALS tables."""
    start = numbers.get(cell.get("namest") or cell.get("colname") or "", 0)
    end = numbers.get(cell.get("nameend") or "", -1)
    rows = max(span_of(cell, "rowspan"), span_of(cell, "morerows", 0) + 1)
    columns = end - start + 1 if end >= start else span_of(cell, "colspan")
    return Cell(_words(cell, with_attributes=True), rows, columns, start)
