"""Parse a file into text with pages and sections, and show its pages. No content is executed, no reference fetched."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from ingest.parse.delimited import read_delimited
from ingest.parse.docx import read_docx
from ingest.parse.encoded import leave_out_encoded, noise_in
from ingest.parse.epub import read_epub
from ingest.parse.html import read_html
from ingest.parse.image import draw_image, locate_in_image, read_image
from ingest.parse.json import read_json
from ingest.parse.mail import read_eml, read_mailbox
from ingest.parse.markup import read_markdown, read_org, read_plain, read_rst
from ingest.parse.msg import read_msg
from ingest.parse.notebook import read_notebook
from ingest.parse.opendocument import read_opendocument
from ingest.parse.parsed import MAX_SECTIONS, MAX_TEXT_CHARS, Attachment, Omissions, Page, Parsed, Section, one_line
from ingest.parse.pdf import read_pdf
from ingest.parse.pdf_page import draw_pdf, locate_in_pdf
from ingest.parse.quotes import Drawing, Located, Locating, Picture
from ingest.parse.rtf import read_rtf
from ingest.parse.scan import OCR, WITHOUT_OCR, ScannedPage
from ingest.parse.slides import read_slides
from ingest.parse.sniff import IMAGES, Format, image_format, sniff
from ingest.parse.workbook import read_workbook
from ingest.parse.xml import read_xml
from ragkv.errors import Rejected, TooLarge
from ragkv.text import scrub

__all__ = ["Attachment", "Page", "Parsed", "Section", "draw", "locate", "parse"]

_READERS: dict[Format, Callable[[bytes, str, Omissions], Parsed]] = {
    Format.TEXT: read_plain,
    Format.MARKDOWN: read_markdown,
    Format.HTML: read_html,
    Format.DOCX: read_docx,
    Format.CSV: read_delimited,
    Format.TSV: partial(read_delimited, format_=Format.TSV),
    Format.XLSX: read_workbook,
    Format.PPTX: read_slides,
    **dict.fromkeys((Format.ODT, Format.ODS, Format.ODP), read_opendocument),
    Format.EPUB: read_epub,
    Format.RTF: read_rtf,
    Format.JSON: read_json,
    Format.NOTEBOOK: read_notebook,
    Format.XML: read_xml,
    Format.RST: read_rst,
    Format.ORG: read_org,
    Format.EML: read_eml,
    Format.MBOX: read_mailbox,
    Format.MSG: read_msg,
}
_OCR_READERS: dict[Format, Callable[[bytes, str, OCR, Omissions], Parsed]] = {
    Format.PDF: read_pdf,
    **dict.fromkeys(IMAGES, read_image),
}


def parse(name: str, body: bytes, ocr: OCR = WITHOUT_OCR, *, keeps_hidden: bool = False) -> Parsed:
    """The text of a file, whatever supported format its bytes are in. `name` is only a hint and a fallback title.
    keeps_hidden: words that the author hid are read like others.

    Raises Rejected (Unsupported, TooLarge) for what cannot be read, naming the file and saying what to do, and
    WantsOCR.
    """
    try:
        return _read(name, body, ocr, Omissions(keeps_hidden=keeps_hidden))
    except Rejected as refusal:
        raise type(refusal)(f"{one_line(name)}: {refusal}") from refusal.__cause__


def _read(name: str, body: bytes, ocr: OCR, omissions: Omissions) -> Parsed:
    if not body.strip():
        raise Rejected("the file is empty")
    format_ = sniff(name, body)
    if reader := _OCR_READERS.get(format_):
        parsed = reader(body, _fallback_title(name), ocr, omissions)
    else:
        parsed = _READERS[format_](body, _fallback_title(name), omissions)
    parsed = leave_out_encoded(parsed, omissions)
    if not any(map(str.isalnum, parsed.text)):
        left = omissions.left_out
        unread = "hidden words" if left.hidden_words else "files written as base64" if left.encoded_chars else ""
        raise Rejected(f"it contains no text but {unread}" if unread else "it contains no text")
    if reason := noise_in(parsed.text):
        raise Rejected(reason)
    if len(parsed.text) > MAX_TEXT_CHARS:
        raise TooLarge(f"it holds {len(parsed.text):,} characters, the limit is {MAX_TEXT_CHARS:,}: split it")
    if len(parsed.sections) > MAX_SECTIONS:
        raise TooLarge(f"it has {len(parsed.sections):,} headings, the limit is {MAX_SECTIONS:,}: split it")
    return replace(parsed, left_out=omissions.left_out)


def _fallback_title(name: str) -> str:
    """The file's name without folders and suffix."""
    stem = PurePosixPath(name.replace("\\", "/")).stem
    return one_line(scrub(stem).replace("_", " ")) or "Untitled"


def draw(body: bytes, drawing: Drawing) -> Picture:
    """The picture of a page, of at most MAX_PIXELS. Raises NotFound for a page that does not exist, and Rejected."""
    return draw_image(body, drawing) if image_format(body) else draw_pdf(body, drawing)


def locate(body: bytes, locating: Locating, scans: tuple[ScannedPage, ...]) -> Located:
    """The boxes of quotes on pages; `scans` has the lines of those that were read by OCR.

    Raises NotFound if there is no first page, and Rejected for a file that cannot be read.
    """
    return locate_in_image(body, locating, scans) if image_format(body) else locate_in_pdf(body, locating, scans)
