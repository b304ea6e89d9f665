"""Parser for Word documents, by conversion to HTML."""

import io
import re
import zipfile
import zlib
from contextlib import suppress
from xml.parsers import expat

import mammoth
from lxml import etree

from ingest.parse.clean import scrub
from ingest.parse.html import parse_source
from ingest.parse.parsed import Parsed, one_line
from ingest.parse.sniff import Format
from ragkv.errors import Rejected, TooLarge

MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_XML_BYTES = 32 * 1024 * 1024
MAX_ELEMENTS = 500_000
_PIECE = 1 << 16
_STYLES = """
p[style-name='Title'] => h1.title:fresh
p[style-name='Heading 7'] => h6:fresh
p[style-name='Heading 8'] => h6:fresh
p[style-name='Heading 9'] => h6:fresh
"""
_CORE = "docProps/core.xml"
_CORE_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_XML_PART = re.compile(r"\.(xml|rels)$", re.IGNORECASE)
_DAMAGED = "the DOCX is damaged and cannot be read: open it in a word processor and save it again"


def read_docx(body: bytes, fallback_title: str) -> Parsed:
    """Paragraphs, headings, lists, tables, text boxes and notes; images, comments and deleted text are left out.

    Raises TooLarge for a file that unpacks to much more than a document, Rejected for one that is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            _check_parts(archive)
            title = _core_title(archive)
        html = _to_html(body)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError):
        raise Rejected(_DAMAGED) from None
    return parse_source(html, title or fallback_title, Format.DOCX)


def _check_parts(archive: zipfile.ZipFile) -> None:
    """Raise Rejected for a document type, TooLarge for too many bytes, or for more than MAX_ELEMENTS in all parts
    together."""
    entries = archive.infolist()
    xml_parts = [entry for entry in entries if _XML_PART.search(entry.filename)]
    unpacked, xml = (sum(entry.file_size for entry in some) for some in (entries, xml_parts))
    if unpacked > MAX_UNPACKED_BYTES or xml > MAX_XML_BYTES:
        raise TooLarge(f"it unpacks to {unpacked >> 20} MiB, {xml >> 20} of them text: split it or save it as PDF")
    check = _Check()
    for entry in xml_parts:
        check.part(archive, entry)


class _Check:
    """Handlers of an XML parser that only checks."""

    def __init__(self) -> None:
        self._elements = 0

    def part(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._element
        with (
            archive.open(entry) as part,
            suppress(expat.ExpatError),
        ):  # if the document uses this part, reading it fails
            while piece := part.read(_PIECE):
                parser.Parse(piece)

    def _doctype(self, *doctype: object) -> None:
        """Reject a document type: no word processor writes one, and its entities could expand without end or read
        files."""
        raise Rejected("it declares XML entities, which no word processor does: save it again")

    def _element(self, *element: object) -> None:
        """Count elements: each costs the reader a kilobyte and up to 80 microseconds, and the archive less than a
        byte."""
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise TooLarge(f"its markup has more than {MAX_ELEMENTS:,} elements: split it or save it as PDF")


def _core_title(archive: zipfile.ZipFile) -> str | None:
    if _CORE not in archive.namelist():
        return None
    try:
        root = etree.fromstring(archive.read(_CORE), etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError:
        return None
    return one_line(scrub(root.findtext(_CORE_TITLE) or "")) or None


def _to_html(body: bytes) -> str:
    try:
        result = mammoth.convert_to_html(
            io.BytesIO(body), style_map=_STYLES, include_embedded_style_map=False, convert_image=lambda image: []
        )
    except RecursionError:
        raise Rejected("its parts are nested too deeply: save it as PDF and upload that") from None
    except MemoryError:
        raise
    except Exception as error:  # mammoth passes on any error of a damaged part: KeyError, ValueError, OSError...
        raise Rejected(_DAMAGED) from error
    return str(result.value)
