"""Archives of XML parts, such as Office documents: checked as a whole before any part is read."""

import io
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO
from xml.parsers import expat

from lxml import etree

from ingest.parse.parsed import one_line
from ragkv.errors import Rejected, TooLarge
from ragkv.text import scrub

MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_XML_BYTES = 32 * 1024 * 1024
_PIECE = 1 << 16
_BEFORE_MARKUP = b"\xef\xbb\xbf\xfe\xff\0 \t\r\n"
_CORE = "docProps/core.xml"
_TITLE = ".//{http://purl.org/dc/elements/1.1/}title"


class Check:
    """Handlers of an XML parser that reads every part and keeps nothing.

    Raises Rejected for a document type with an internal subset, whose entities could expand without end or read
    files, and TooLarge for more markup than the limits, in all parts together.
    """

    max_xml_bytes = MAX_XML_BYTES
    max_elements = 500_000
    """Each costs the reader a kilobyte and up to 80 microseconds, and the archive less than a byte."""

    def __init__(self) -> None:
        self._elements = 0

    def part(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        with archive.open(entry) as part:
            self.stream(part)

    def stream(self, part: IO[bytes]) -> None:
        """Check one part. One that is not well-formed or in an unknown encoding passes: a reader that needs it
        fails."""
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self.doctype
        parser.StartElementHandler = self.element
        with suppress(expat.ExpatError, ValueError, LookupError):
            while piece := part.read(_PIECE):
                parser.Parse(piece)

    def doctype(self, name: str, system: str | None, public: str | None, has_declarations: bool) -> None:
        """Reject any document type: no Office program writes one."""
        raise Rejected("it has a document type declaration, which may define XML entities: save it without one")

    def element(self, name: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        if self._elements > self.max_elements:
            raise TooLarge(f"its markup has more than {self.max_elements:,} elements: split it or save it as PDF")


@dataclass(frozen=True, slots=True)
class Relation:
    """A part that another one names, and what it is to it (the last word of the relation's type)."""

    kind: str
    path: str


class CheckPages(Check):
    """Allows a document type without declarations: it names a vocabulary, whose definition is not fetched."""

    def doctype(self, name: str, system: str | None, public: str | None, has_declarations: bool) -> None:
        if has_declarations:
            super().doctype(name, system, public, has_declarations)


class Archive:
    """The parts of an archive by their paths."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self.paths = frozenset(file.namelist())

    def read(self, path: str) -> bytes:
        """The bytes of a part. Raises Rejected if the part is missing."""
        with self.stream(path) as part:
            return part.read()

    def stream(self, path: str) -> IO[bytes]:
        """A part to be read piece by piece. Raises Rejected if the part is missing."""
        if path not in self.paths:
            raise Rejected(f"its part {one_line(scrub(path))} is missing: save or download it again")
        return self._file.open(path)

    def xml(self, path: str) -> etree._Element:
        return parse_xml(self.read(path))

    def relations(self, path: str) -> Mapping[str, Relation]:
        """The relations of an Office document's part to others, by their ids."""
        folder, name = posixpath.split(path)
        listed = posixpath.join(folder, "_rels", f"{name}.rels")
        if listed not in self.paths:
            return {}
        return {
            element.get("Id", ""): Relation(
                element.get("Type", "").rpartition("/")[2], joined(folder, element.get("Target", ""))
            )
            for element in self.xml(listed).iter("{*}Relationship")
        }

    def core_title(self) -> str:
        """The title among an Office document's properties, or nothing."""
        with suppress(Rejected, etree.XMLSyntaxError):
            return title_in(self.xml(_CORE))
        return ""


def title_in(properties: etree._Element) -> str:
    """The title among properties in the terms of Dublin Core, or nothing."""
    return one_line(scrub(properties.findtext(_TITLE) or ""))


def parse_xml(source: bytes) -> etree._Element:
    """The root of a document, without comments. No entity is expanded, nothing is fetched."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
    return etree.fromstring(source, parser)


def joined(folder: str, reference: str) -> str:
    """The path of a part that a part in a folder refers to."""
    return posixpath.normpath(posixpath.join("/", folder, reference)).lstrip("/")


@contextmanager
def opened(body: bytes, kind: str, check: Check | None = None) -> Iterator[Archive]:
    """The archive, after its check. Raises Rejected, naming the `kind` of file, where it is damaged, TooLarge for a
    file that unpacks to much more than a document."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as file:
            try:
                _check(file, check or Check())
            except (ValueError, OSError, struct.error):  # of places outside the file
                raise damaged(kind) from None
            yield Archive(file)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, etree.XMLSyntaxError):
        raise damaged(kind) from None


def damaged(kind: str) -> Rejected:
    return Rejected(f"the {kind} is damaged and cannot be read: open it in the program that made it and save it again")


def _check(file: zipfile.ZipFile, check: Check) -> None:
    entries = file.infolist()
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        raise Rejected("it is packed in an unusual way: open it in the program that made it and save it again")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > MAX_UNPACKED_BYTES:
        raise TooLarge(f"it unpacks to {unpacked >> 20} MiB: split it or save it as PDF")
    xml_parts = []
    for entry in entries:
        with file.open(entry) as part:  # markup by its first character: a reader does not care about its name
            if part.read(_PIECE).lstrip(_BEFORE_MARKUP)[:1] in (b"<", b""):
                xml_parts.append(entry)
    xml = sum(entry.file_size for entry in xml_parts)
    if xml > check.max_xml_bytes:
        raise TooLarge(f"it unpacks to {unpacked >> 20} MiB, {xml >> 20} of them text: split it or save it as PDF")
    for entry in xml_parts:
        check.part(file, entry)
