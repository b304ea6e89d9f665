"""Citations held against what a reader is shown: the document's page, its text, its pages, and the boxes on a PDF.

`read_under` reads what lies under the boxes of a scan by OCR, once more.
"""

from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
from lxml import html
from PIL import Image, ImageDraw, ImageOps

from api.v1.passages import PICTURED
from ingest.parse import Parsed
from ingest.parse.scan import Recognise
from ragkv.answer.cite import cite
from ragkv.answer.question import Citation
from ragkv.answer.sentences import sentences
from ragkv.chunk import Passage
from ragkv.service.base.database import Database
from ragkv.service.documents.chunk_statements import CHUNK_KEYS, chunks_of, to_chunk
from ragkv.text import page_label, scrub
from tests.integration.test_pages import text_under, words

PDF = "application/pdf"


def citations_in(document_id: str, database: Database) -> list[Citation]:
    """The citations of answers that say what the document says, one for each of its sentences."""
    with database.reading() as session:
        chunks = [to_chunk(row) for row in session.scalars(chunks_of(document_id).order_by(*CHUNK_KEYS))]
    return [
        citation
        for chunk in chunks
        for place in sentences(chunk.text)
        for citation in cite(chunk.text[slice(*place)], "", [Passage(chunk, 1.0, 1)])[:1]
    ]


def faults(client: httpx.Client, document_id: str, parsed: Parsed, body: bytes, cited: Citation) -> Iterator[str]:
    """Faults of a citation; none if its mark, its page and its boxes lie on the words. `parsed` is what `body` says."""
    if parsed.text[cited.start : cited.end] != cited.quote:
        yield "the document's text has other words there"
    if (page := _page_of(parsed, cited)) != cited.page:
        yield f"the words are on page {page}, the citation says {cited.page}"
    shown = client.get(f"/admin/documents/{document_id}", params={"at": f"{cited.start}-{cited.end}"})
    document = html.fromstring(shown.text)
    marked = "".join(mark.text_content() for mark in document.iter("mark"))
    if marked != cited.quote:
        yield f"the mark lies on {marked[:80]!r}"
    range_ = {"start": cited.start, "end": cited.end}
    yield from _page_faults(client.get(f"/v1/documents/{document_id}/text", params=range_).json(), parsed, cited)
    if not parsed.media_type.startswith(PICTURED):
        lit = "".join(element.text_content() for element in document.xpath("//*[@id='lit-text']"))
        if lit != cited.quote:
            yield f"lit on the page's text is {lit[:80]!r}"
    if parsed.media_type == PDF and not parsed.scans:
        boxed = client.get(f"/v1/documents/{document_id}/boxes", params=range_).json()["pages"]
        wanted, under = _letters(cited.quote), _letters(text_under(body, boxed))
        if under not in (wanted, _letters(cited.quote.replace(" | ", "").replace(": ", ""))):
            missing, beside = ("".join((one - other).elements()) for one, other in ((wanted, under), (under, wanted)))
            yield f"the boxes miss {missing[:80]!r} and hold {beside[:80]!r} beside the words"


def read_under(client: httpx.Client, document_id: str, cited: Citation, recognise: Recognise) -> str:
    """The words under the boxes, each cut out of the page's picture with a margin of a fifth of its height."""
    found = []
    for page, boxes in _boxed_pages(client, document_id, cited, width=2400):
        for left, top, right, bottom in boxes:
            margin = min(right - left, bottom - top) / 5
            corners = (left - margin, top - margin, right + margin, bottom + margin)
            cut = ImageOps.expand(page.crop(tuple(map(round, corners))), 40, "white")
            found.append(recognise(cut).text)
    return " ".join(found)


def save_lit(client: httpx.Client, document_id: str, cited: Citation, path: Path) -> None:
    """The pages of a citation with its boxes drawn on them, as PATH-1.png and so on."""
    for number, (page, boxes) in enumerate(_boxed_pages(client, document_id, cited, width=1200), start=1):
        draw = ImageDraw.Draw(page)
        for corners in boxes:
            draw.rectangle(corners, outline="red", width=3)
        page.save(path.with_name(f"{path.name}-{number}.png"))


def _boxed_pages(
    client: httpx.Client, document_id: str, cited: Citation, width: int
) -> Iterator[tuple[Image.Image, list[tuple[float, float, float, float]]]]:
    """Pictures of a citation's pages, at most `width` pixels wide, each with the corners of its boxes in pixels."""
    range_ = {"start": cited.start, "end": cited.end}
    for boxed in client.get(f"/v1/documents/{document_id}/boxes", params=range_).json()["pages"]:
        with Image.open(BytesIO(client.get(boxed["picture"], params={"width": width}).content)) as shown:
            page = shown.convert("RGB")
        scale = page.width / boxed["width"]
        sides = ((box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]) for box in boxed["boxes"])
        yield page, [(scale * left, scale * top, scale * right, scale * bottom) for left, top, right, bottom in sides]


def _page_faults(shown: dict[str, Any], parsed: Parsed, cited: Citation) -> Iterator[str]:
    """Faults of the text around the words: other words, another page, or text that is not beside them on it."""
    if shown["cited"] != cited.quote:
        yield f"the page's text cites {shown['cited'][:80]!r}"
    if (shown["page"], shown["page_label"]) != (cited.page, page_label(parsed.media_type, cited.page)):
        yield f"the text is that of {shown['page_label']}"
    page = next((page for page in parsed.pages if page.number == cited.page), None)
    start, end = (page.start, page.end) if page else (0, len(parsed.text))
    for side, whole in (("before", parsed.text[start : cited.start]), ("after", parsed.text[cited.end : end])):
        if not _has_lines(whole, shown[side]):
            yield f"{side} the words stands {shown[side][:80]!r}"


def _has_lines(whole: str, shown: str) -> bool:
    """Whether the lines shown stand there in this order. Headings between them are in the titles of chunks alone."""
    packed, at = "".join(whole.split()), 0
    for line in ("".join(line.split()) for line in shown.splitlines()):
        if (at := packed.find(line, at)) < 0:
            return False
        at += len(line)
    return True


def _letters(text: str) -> Counter[str]:
    """In any order, as labels of a table's rows stand in its header, and exponents above their line."""
    return Counter(words(scrub(text)))


def _page_of(parsed: Parsed, cited: Citation) -> int | None:
    return next((page.number for page in parsed.pages if page.start <= cited.start < page.end), None)
