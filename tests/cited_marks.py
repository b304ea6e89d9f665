"""Citations held against what a reader is shown: the document's page, its text, its pages, and the boxes on a PDF."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
from lxml import html

from api.v1.pages import PICTURED
from ingest.parse import Parsed
from ingest.parse.clean import scrub
from ragkv.answer.cite import cite
from ragkv.answer.question import Citation
from ragkv.answer.sentences import sentences
from ragkv.chunk import Passage
from ragkv.db.chunks import CHUNK_KEYS, chunks_of, to_chunk
from ragkv.db.database import Database
from ragkv.page_names import page_label
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
    if parsed.media_type == PDF:
        boxed = client.get(f"/v1/documents/{document_id}/boxes", params=range_).json()["pages"]
        wanted, under = _letters(cited.quote), _letters(text_under(body, boxed))
        if under not in (wanted, _letters(cited.quote.replace(" | ", "").replace(": ", ""))):
            missing, beside = ("".join((one - other).elements()) for one, other in ((wanted, under), (under, wanted)))
            yield f"the boxes miss {missing[:80]!r} and hold {beside[:80]!r} beside the words"


def _page_faults(shown: dict[str, Any], parsed: Parsed, cited: Citation) -> Iterator[str]:
    """Faults of the text around the words: other words, another page, or text that is not beside them on it."""
    if shown["cited"] != cited.quote:
        yield f"the page's text cites {shown['cited'][:80]!r}"
    if (shown["page"], shown["page_label"]) != (cited.page, page_label(parsed.media_type, cited.page)):
        yield f"the text is that of {shown['page_label']}"
    page = next((page for page in parsed.pages if page.number == cited.page), None)
    start, end = (page.start, page.end) if page else (0, len(parsed.text))
    before, after = _packed(parsed.text[start : cited.start]), _packed(parsed.text[cited.end : end])
    if not before.endswith(_packed(shown["before"])):
        yield f"before the words stands {shown['before'][-80:]!r}"
    if not after.startswith(_packed(shown["after"])):
        yield f"after the words stands {shown['after'][:80]!r}"


def _packed(text: str) -> str:
    return "".join(text.split())


def _letters(text: str) -> Counter[str]:
    """In any order, as labels of a table's rows stand in its header, and exponents above their line."""
    return Counter(words(scrub(text)))


def _page_of(parsed: Parsed, cited: Citation) -> int | None:
    return next((page.number for page in parsed.pages if page.start <= cited.start < page.end), None)
