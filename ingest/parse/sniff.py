"""Detect a file's format: from its bytes, or from its name if the bytes do not tell."""

import io
import re
import zipfile
from enum import Enum
from pathlib import PurePosixPath

from ingest.parse.encoding import is_korean, sure_encoding
from ragkv.errors import Rejected, Unsupported
from ragkv.file_types import READ_KINDS


class Format(Enum):
    """A supported format and its media type."""

    TEXT = "text/plain"
    MARKDOWN = "text/markdown"
    HTML = "text/html"
    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    CSV = "text/csv"
    TSV = "text/tab-separated-values"
    XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    ODT = "application/vnd.oasis.opendocument.text"
    ODS = "application/vnd.oasis.opendocument.spreadsheet"
    ODP = "application/vnd.oasis.opendocument.presentation"
    EPUB = "application/epub+zip"
    RTF = "application/rtf"
    EML = "message/rfc822"
    MBOX = "application/mbox"
    MSG = "application/vnd.ms-outlook"
    JSON = "application/json"
    NOTEBOOK = "application/x-ipynb+json"
    XML = "application/xml"
    RST = "text/x-rst"
    ORG = "text/org"
    PNG = "image/png"
    JPEG = "image/jpeg"
    TIFF = "image/tiff"
    WEBP = "image/webp"
    BMP = "image/bmp"
    GIF = "image/gif"


SUPPORTED = f"upload {READ_KINDS}"
PROTECTED = "it is protected by a password: remove the password and upload it again"
_SUFFIXES = {
    Format.TEXT: (".txt", ".text", ".log"),
    Format.MARKDOWN: (".md", ".markdown", ".mdx"),
    Format.HTML: (".html", ".htm", ".xhtml"),
    Format.CSV: (".csv",),
    Format.TSV: (".tsv", ".tab"),
    Format.JSON: (".json", ".jsonl", ".ndjson", ".geojson"),
    Format.NOTEBOOK: (".ipynb",),
    Format.XML: (".xml", ".nxml", ".rss", ".atom", ".dita"),
    Format.RST: (".rst",),
    Format.ORG: (".org",),
    Format.EML: (".eml", ".mht", ".mhtml"),
}
_BY_SUFFIX = {suffix: format_ for format_, suffixes in _SUFFIXES.items() for suffix in suffixes}
_NEVER_TEXT = (".pdf", ".docx", ".xlsx", ".xlsm", ".pptx", ".odt", ".ods", ".odp", ".epub", ".rtf", ".msg")
_ARCHIVE = "an archive: unpack it and upload the files in it"
IMAGES = {
    Format.PNG: re.compile(rb"\x89PNG"),
    Format.JPEG: re.compile(rb"\xff\xd8\xff"),
    Format.GIF: re.compile(rb"GIF8"),
    Format.TIFF: re.compile(rb"II[*+]\0|MM\0[*+]"),
    Format.WEBP: re.compile(rb"RIFF....WEBP", re.DOTALL),
    Format.BMP: re.compile(rb"BM.{4}\0{4}.{4}[\x0c\x28\x34\x38\x40\x6c\x7c]\0{3}", re.DOTALL),
}
"""How a file of each format of images begins."""
_SIGNATURES = (
    (b"\x1f\x8b", _ARCHIVE),
    (b"7z\xbc\xaf\x27\x1c", _ARCHIVE),
    (b"Rar!\x1a\x07", _ARCHIVE),
    (b"BZh", _ARCHIVE),
    (b"\xfd7zXZ\0", _ARCHIVE),
    (b"\x7fELF", "a program"),
    (b"%!PS", "a PostScript file: convert it to PDF"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OUTLOOK = "__properties_version1.0".encode("utf-16-le")
_CONTROLS = bytes(range(9)) + bytes(range(14, 27))
_SAMPLE_BYTES = 64 * 1024
_MAX_ZIP_ENTRIES = 10_000
MAIL_START = re.compile(
    rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\r\n]{0,500}\d\d:\d\d[^\r\n]{0,100}\r?\n(?=(?:>From [^\r\n]{0,500}\r?\n)?[!-9;-~]{1,100}:)"
)
"""The line that begins a mail in a mailbox: who sent it and when, before the mail's headers."""
_ZIP_FORMATS = (
    ("xl/workbook.xml", Format.XLSX),
    ("ppt/presentation.xml", Format.PPTX),
    ("META-INF/container.xml", Format.EPUB),
    ("content.xml", Format.ODT),  # the reader tells which kind of OpenDocument it is
)


def sniff(name: str, body: bytes) -> Format:
    """The format of a file. Raises Rejected for one that is damaged or encrypted, Unsupported for other formats."""
    suffix = PurePosixPath(name.lower()).suffix
    # Readers take a PDF's signature anywhere in the first kilobyte; a text may mention it, too.
    if body.lstrip().startswith(b"%PDF-") or (suffix == ".pdf" and b"%PDF-" in body[:1024]):
        return Format.PDF
    if body.startswith(b"PK\x03\x04"):
        return _format_of_zip(body)
    if body.startswith(_OLE):
        if _OUTLOOK in body:  # first: an encrypted file may be attached to the message
            return Format.MSG
        if "EncryptedPackage".encode("utf-16-le") in body:
            raise Rejected(PROTECTED)
        raise Unsupported("it is an old Office file: save it as DOCX or PDF")
    if body.startswith(b"{\\rtf"):
        return Format.RTF
    if image := image_format(body):
        return image
    for signature, meaning in _SIGNATURES:
        if body.startswith(signature):
            raise Unsupported(f"it is {meaning}" if ":" in meaning else f"it is {meaning}: {SUPPORTED}")
    return _format_of_text(suffix, body)


def image_format(body: bytes) -> Format | None:
    """The format of an image; None for other files."""
    return next((format_ for format_, signature in IMAGES.items() if signature.match(body)), None)


def _format_of_zip(body: bytes) -> Format:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise Rejected("the file is damaged or cut short: save or download it again") from None
    if any(entry.flag_bits & 1 for entry in entries.values()):
        raise Rejected(PROTECTED)
    if len(entries) > _MAX_ZIP_ENTRIES:
        raise Rejected(f"it holds more than {_MAX_ZIP_ENTRIES} parts: save it as a plain DOCX or PDF")
    if "[Content_Types].xml" in entries and any(path.startswith("word/") for path in entries):
        return Format.DOCX
    for path, format_ in _ZIP_FORMATS:
        if path in entries:
            return format_
    is_binary_workbook = "xl/workbook.bin" in entries
    raise Unsupported("it is " + ("a binary Excel workbook: save it as XLSX" if is_binary_workbook else _ARCHIVE))


def _format_of_text(suffix: str, body: bytes) -> Format:
    if suffix in _NEVER_TEXT:
        raise Rejected(f"its name ends in {suffix}, but its content is something else or damaged: save it again")
    sample = body[:_SAMPLE_BYTES]
    num_controls = len(sample) - len(sample.translate(None, _CONTROLS))
    is_binary = sample.count(0) * 1000 > len(sample) or num_controls * 20 > len(sample)
    # UTF-16 and UTF-32 have zeros, ISO-2022-KR control characters.
    if is_binary and not sure_encoding(body) and not is_korean(sample):
        raise Unsupported(f"it is a binary file of an unknown kind: {SUPPORTED}")
    start = body[:2048].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").lower()
    is_xml = start.startswith(b"<?xml")
    is_html = start.startswith((b"<!doctype html", b"<html")) or (is_xml and b"<html" in start)
    by_name = _BY_SUFFIX.get(suffix, Format.XML if is_xml else Format.TEXT)
    if by_name is not Format.EML and MAIL_START.match(body):
        return Format.MBOX
    return Format.HTML if is_html and by_name is not Format.EML else by_name
