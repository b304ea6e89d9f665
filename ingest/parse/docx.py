"""Parser for Word documents, by conversion to HTML."""

import io
import re
import zipfile
from collections.abc import Callable
from itertools import chain

import mammoth
from lxml import etree
from lxml.etree import _Element

from ingest.parse.archive import Archive, damaged, opened, parse_xml
from ingest.parse.html import parse_source, read_html
from ingest.parse.list_numbers import mark_list_numbers, number_items
from ingest.parse.mail import read_eml
from ingest.parse.markup import read_plain
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.rtf import read_rtf
from ingest.parse.slides import read_slides
from ingest.parse.sniff import Format, sniff
from ingest.parse.word_markup import Rewriter, line_of, mark_headings, without_repeated
from ingest.parse.workbook import read_workbook
from ragkv.errors import Rejected, Unsupported

_STYLES = """
p[style-name='Title'] => h1.title:fresh
p[style-name='Heading 7'] => h6:fresh
p[style-name='Heading 8'] => h6:fresh
p[style-name='Heading 9'] => h6:fresh
br[type='page'] => br:fresh
br[type='column'] => br:fresh
"""
_BOXES = str.maketrans({**dict.fromkeys("☐□⬜🞎🞏🗌❑❒", "[ ] "), **dict.fromkeys("☑☒🗹🗷🗵⌧⮽", "[x] ")})
_INPUT = re.compile(r'<input( checked="checked")? type="checkbox"( checked="checked")? ?/>')
_MAX_DEPTH = 3
_FURNITURE = ("header", "footer")


def read_docx(body: bytes, fallback_title: str, omissions: Omissions, depth: int = 0) -> Parsed:
    """Paragraphs, headings, lists, tables, charts, text boxes, notes, equations, descriptions of pictures and embedded
    files; then what stands in headers and footers alone. Comments and deleted text are left out.

    Raises TooLarge for a file that unpacks to much more than a document, Rejected for one that is damaged.
    """
    with opened(body, "DOCX") as archive:
        title = archive.core_title()
        readable = io.BytesIO(_Parts(archive, omissions, depth).readable())
    try:
        result = mammoth.convert_to_html(
            readable, style_map=_STYLES, include_embedded_style_map=False, convert_image=lambda image: []
        )
    except RecursionError:
        raise Rejected("its parts are nested too deeply: save it as PDF and upload that") from None
    except MemoryError:
        raise
    except Exception as error:  # mammoth passes on any error of a damaged part: KeyError, ValueError, OSError...
        raise damaged("DOCX") from error
    html = _INPUT.sub(lambda box: "☑" if "checked=" in box[0] else "☐", str(result.value)).translate(_BOXES)
    return parse_source(number_items(html), title or fallback_title, Format.DOCX, omissions)


class _Parts:
    """The parts of one document, whose markup is rewritten for the library."""

    def __init__(self, archive: Archive, omissions: Omissions, depth: int) -> None:
        packaged = {relation.kind: relation.path for relation in archive.relations("").values()}
        self._archive = archive
        self._document = packaged.get("officeDocument", "word/document.xml")
        self._relations = archive.relations(self._document)
        self._paths = {relation.kind: relation.path for relation in self._relations.values()}
        self._styles = self._xml(self._path("styles"))

        def read_file(path: str, file: bytes) -> Parsed:
            format_ = sniff(path, file)
            if format_ is Format.DOCX and depth < _MAX_DEPTH:
                return read_docx(file, "", omissions, depth + 1)
            if format_ not in _EMBEDDED:
                raise Unsupported("an embedded file of this format is not read")
            return _EMBEDDED[format_](file, "", omissions)

        self._rewriter = Rewriter(archive, self._styles, omissions, read_file)

    def readable(self) -> bytes:
        """The document with nothing in it that the library leaves out."""
        parts = {path: self._archive.read(path) for path in self._archive.paths if path.endswith((".xml", ".rels"))}
        for path in (self._document, self._path("footnotes"), self._path("endnotes")):
            if (root := self._xml(path)) is not None:
                self._rewriter.rewrite(root, path)
                if path == self._document:
                    self._complete(root)
                parts[path] = etree.tostring(root)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for path, part in parts.items():
                archive.writestr(path, part)
        return file.getvalue()

    def _complete(self, document: _Element) -> None:
        """Add the numbers of lists, styles of headings, and headers and footers."""
        if (numbering := self._xml(self._path("numbering"))) is not None:
            mark_list_numbers(document, numbering, self._styles)
        mark_headings(document, self._styles)
        if (body := document.find("{*}body")) is not None:
            lines = {"", *map(line_of, document.iter("{*}p"))}
            references = (mark for kind in _FURNITURE for mark in document.iter(f"{{*}}{kind}Reference"))
            ids = (
                mark.attrib.values()
                for mark in references  # but for those of a first page that is like the others
                if "first" not in mark.attrib.values() or mark.getparent().find("{*}titlePg") is not None
            )
            keys = (key for key in chain.from_iterable(ids) if key in self._relations)
            for path in dict.fromkeys(self._relations[key].path for key in keys):
                if (root := self._xml(path)) is not None:
                    self._rewriter.rewrite(root, path)
                    body.extend(without_repeated(root, lines))

    def _path(self, kind: str) -> str:
        return self._paths.get(kind, f"word/{kind}.xml")

    def _xml(self, path: str) -> _Element | None:
        """The root of a part; None for one that is missing or damaged, of which the library decides."""
        try:
            return parse_xml(self._archive.read(path)) if path in self._archive.paths else None
        except etree.XMLSyntaxError:
            return None


_EMBEDDED: dict[Format, Callable[[bytes, str, Omissions], Parsed]] = {
    Format.TEXT: read_plain,
    Format.HTML: read_html,
    Format.RTF: read_rtf,
    Format.EML: read_eml,
    Format.XLSX: read_workbook,
    Format.PPTX: read_slides,
}
