"""Parser for PDF: the text layer, page by page, with sections from bookmarks. Pages without text, such as scans, are
read by OCR."""

import math
import re
import threading
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice, takewhile

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_raw

from ingest.parse.parsed import MAX_PAGES, MAX_TITLE_CHARS, Omissions, Page, Parsed, Section, one_line
from ingest.parse.pdf_forms import fields_of
from ingest.parse.pdf_letters import text_of
from ingest.parse.pdf_pages import DrawnPage, drawn_page, in_order
from ingest.parse.quotes import MAX_SCALE, check_size
from ingest.parse.scan import OCR, READ_PIXELS, PagePicture, ScannedPage
from ingest.parse.sniff import PROTECTED, Format
from ragkv.errors import Rejected, TooLarge, Unsupported
from ragkv.text import PRESENTATION_FORMS, scrub, tidy

_MAX_BOOKMARKS = 5_000
_END_MARK_WITHIN = 4096
PDFIUM = threading.Lock()  # the library keeps global state: one thread at a time
LINE_END_HYPHEN = re.compile("(?:[\ufffe\x02]|\u2010(?=\\s*\n))\\s*(.?)")
_TOOL_PREFIX = re.compile(
    r"^(Microsoft (Word|PowerPoint|Excel) - |untitled\b|Document\d*$|\(anonymous\)$)", re.IGNORECASE
)
_NO_TEXT = "there is no text on its pages: if you can see text there, export it again"
_PAGE_GAP = "\n\n"
_SENTENCE_ENDS = ".!?:;…"
_OUTLINE_LINE = re.compile(r"[^\n]+")
_TITLE_NUMBER = re.compile(r"\d+(?:\.\d+)*\.?[ \t]+")
_MAX_NUMBER_CHARS = 40
_MAX_TITLE_LINES = 4


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of the outline. `level` 1 is the outermost, `page_index` counts from 0."""

    title: str
    level: int
    page_index: int


def read_pdf(body: bytes, fallback_title: str, ocr: OCR, omissions: Omissions) -> Parsed:
    """The text layer, values of filled forms included, pages apart by a blank line unless a sentence goes on; bookmarks
    become sections.

    Pages that show something but have no text are read by OCR; where there is none they are empty, unless all are such.
    Raises Rejected for files that are encrypted, damaged or cut short, each with what to do about it.
    """
    if b"%%EOF" not in body[-_END_MARK_WITHIN:]:
        raise Rejected("it ends before its end mark, so it was cut short: download or export it again")
    with PDFIUM, opened(body) as document:
        page_texts, pictures = _page_texts(document, omissions)
        if pictures and ocr.refusal and not any(page_texts):
            layer = "its text layer is hidden" if omissions.left_out.hidden_words else "it has no text layer"
            raise Unsupported(f"{layer}: {ocr.refusal}")
        scans = [] if ocr.refusal else _read_pictures(document, pictures, page_texts, ocr)
        title = _title(lambda: document.get_metadata_value("Title"))
        bookmarks = [
            Bookmark(entry_title, entry.level + 1, page_index)
            for entry in islice(document.get_toc(), _MAX_BOOKMARKS)
            if (destination := entry.get_dest()) and (page_index := destination.get_index()) is not None
            if page_index >= 0 and (entry_title := _title(entry.get_title))
        ]
    text, pages = _join(page_texts)
    if not text:
        raise Rejected(_NO_TEXT)
    sections = sections_of_outline(text, pages, bookmarks)
    if _TOOL_PREFIX.match(title):  # a program put its own name there
        title = ""
    return Parsed(title or fallback_title, text, pages, Format.PDF.value, sections, tuple(scans))


def opened(body: bytes) -> pdfium.PdfDocument:
    """The document, to be closed by the caller, under the lock PDFIUM. Raises Rejected for one that cannot be read."""
    try:
        document = pdfium.PdfDocument(body)
    except pdfium.PdfiumError as error:
        if error.err_code in (pdfium_raw.FPDF_ERR_PASSWORD, pdfium_raw.FPDF_ERR_SECURITY):
            raise Rejected(PROTECTED) from None
        raise _damaged() from None
    if not 0 < len(document) <= MAX_PAGES:
        pages = len(document)
        document.close()
        raise TooLarge(f"it has {pages} pages, the limit is {MAX_PAGES}: split it") if pages else _damaged()
    return document


def _damaged() -> Rejected:
    return Rejected("the PDF is damaged and cannot be read: download or export it again")


def _page_texts(document: pdfium.PdfDocument, omissions: Omissions) -> tuple[list[str], list[int]]:
    """The text of each page, and the indices of those that show something but have no words."""
    texts: list[str] = []
    pictures: list[int] = []
    for page, letters in in_order(drawn_pages(document, range(len(document)), omissions)):
        # Words cut by a hyphen at a line's end are joined; ligatures and shaped Arabic become ordinary letters.
        text = LINE_END_HYPHEN.sub(lambda cut: end_of_line(cut) + cut[1], text_of(letters))
        text = PRESENTATION_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
        texts.append(tidy(scrub(text)))
        if page.is_picture:
            pictures.append(page.number - 1)
    return texts, pictures


def drawn_pages(document: pdfium.PdfDocument, indices: Iterable[int], omissions: Omissions) -> Iterator[DrawnPage]:
    """Pages by index, one after the other. Raises Rejected for one that is damaged."""
    for index in indices:
        fields = fields_of(document, index)
        with page_at(document, index) as page:
            yield drawn_page(page, index + 1, fields, omissions)


def _read_pictures(
    document: pdfium.PdfDocument, indices: list[int], page_texts: list[str], ocr: OCR
) -> list[ScannedPage]:
    """Read pages by OCR; their text takes its place among the others."""
    if not indices:
        return []
    scans = []
    read = ocr.read([index + 1 for index in indices], partial(_picture, document))
    for index, page in zip(indices, read, strict=True):
        page_texts[index] = tidy(scrub(page.text)) or page_texts[index]
        scans.append(page.scan)
    return scans


def _picture(document: pdfium.PdfDocument, number: int) -> PagePicture:
    with page_at(document, number - 1) as page:
        width, height = page.get_size()
        check_size(width, height)
        scale = min(math.sqrt(READ_PIXELS / (width * height)), MAX_SCALE)
        with closing(page.render(scale=scale)) as bitmap:
            image = bitmap.to_pil().convert("RGB")
    return PagePicture(image, width, height, image.width / width)


@contextmanager
def page_at(document: pdfium.PdfDocument, index: int) -> Iterator[pdfium.PdfPage]:
    """A page, the values of filled forms drawn onto it. Raises Rejected if it is damaged."""
    try:
        if document.get_formtype() != pdfium_raw.FORMTYPE_NONE:
            document.init_forms()
            form = document[index]
            form.flatten()  # the page must be opened again to see what it draws
            form.close()
        with closing(document[index]) as page:
            yield page
    except pdfium.PdfiumError:
        raise Rejected(f"page {index + 1} is damaged and cannot be read: export the file again") from None


def end_of_line(cut: re.Match[str]) -> str:
    """The hyphen at a line's end, or nothing: a capital or a digit after it shows that it is part of the word."""
    return "" if cut[1].islower() else "-"


def _join(page_texts: list[str]) -> tuple[str, tuple[Page, ...]]:
    pages: list[Page] = []
    pieces: list[str] = []
    length, preceding = 0, ""
    for number, page_text in enumerate(page_texts, start=1):
        gap = ""
        if preceding and page_text:  # a sentence that goes on is not parted by a blank line
            gap = "\n" if page_text[0].islower() and preceding[-1] not in _SENTENCE_ENDS else _PAGE_GAP
        preceding = page_text or preceding
        start, length = length + len(gap), length + len(gap) + len(page_text)
        pieces += gap, page_text
        pages.append(Page(number, start, length))
    return "".join(pieces), tuple(pages)


def _title(read: Callable[[], str]) -> str:
    """A title as the library reads it; nothing for one with half a character, which it cannot read."""
    with suppress(UnicodeDecodeError):
        return one_line(scrub(read()))
    return ""


def sections_of_outline(text: str, pages: Sequence[Page], bookmarks: Sequence[Bookmark]) -> tuple[Section, ...]:
    """Sections for the bookmarks whose title stands on their page, in the outline's order; the rest are left out.

    A title fills whole lines, numbered or not. Without its own place a section could begin anywhere on its page.
    """
    titles: dict[int, set[str]] = defaultdict(set)
    for bookmark in bookmarks:
        titles[bookmark.page_index].add(_words(tidy(bookmark.title)))
    places = {index: _places(text, page, titles[index]) for index, page in enumerate(pages) if index in titles}
    sections: list[Section] = []
    position = 0
    for bookmark in bookmarks:
        matches = places.get(bookmark.page_index, {}).get(_words(tidy(bookmark.title)), [])
        following = bisect_left(matches, (position, 0))
        if following < len(matches):
            start, position = matches[following]
            sections.append(Section(start, position, bookmark.title, bookmark.level))
    return tuple(sections)


def _places(text: str, page: Page, titles: set[str]) -> dict[str, list[tuple[int, int]]]:
    """The characters [start, end) of each place where one of the titles stands, ascending. Looks at each line once."""
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    lines = list(_OUTLINE_LINE.finditer(text, page.start, page.end))
    for number, line in enumerate(lines):
        if line[0][0].isspace():
            continue
        skipped = _TITLE_NUMBER.match(line[0], 0, _MAX_NUMBER_CHARS)
        following = lines[number : number + _MAX_TITLE_LINES]
        short = takewhile(lambda line: len(line[0]) <= 2 * MAX_TITLE_CHARS, following)
        joined = accumulate((_words(line[0]) for line in short), lambda text, more: f"{text} {more}")
        titles_of_lines = takewhile(lambda words: len(words) <= MAX_TITLE_CHARS + _MAX_NUMBER_CHARS, joined)
        for words, last in zip(titles_of_lines, following, strict=False):
            for candidate in {words, words[len(_words(skipped[0])) :].lstrip()} if skipped else {words}:
                if candidate in titles:
                    places[candidate].append((line.start(), last.end()))
    return places


def _words(text: str) -> str:
    return " ".join(text.split())
