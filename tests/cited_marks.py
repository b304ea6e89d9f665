"""Citations held against what a reader is shown: the document's page, its text, its pages, and the boxes on a PDF."""

from collections.abc import Iterator

import httpx
from lxml import html

from ingest.parse import Parsed, parse
from ragkv.answer.cite import cite
from ragkv.answer.question import Citation
from ragkv.answer.sentences import sentences
from ragkv.chunk import Passage
from ragkv.db.chunks import CHUNK_KEYS, chunks_of, to_chunk
from ragkv.db.database import Database
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


def faults(client: httpx.Client, document_id: str, name: str, body: bytes, cited: Citation) -> Iterator[str]:
    """What is wrong with a citation; nothing if its mark, its page and its boxes lie on the words."""
    parsed = parse(name, body)
    if parsed.text[cited.start : cited.end] != cited.quote:
        yield "the document's text has other words there"
    if (page := _page_of(parsed, cited)) != cited.page:
        yield f"the words are on page {page}, the citation says {cited.page}"
    shown = client.get(f"/admin/documents/{document_id}", params={"at": f"{cited.start}-{cited.end}"})
    marked = "".join(mark.text_content() for mark in html.fromstring(shown.text).iter("mark"))
    if marked != cited.quote:
        yield f"the mark lies on {marked[:80]!r}"
    if parsed.media_type == PDF and not _is_boxed(client, document_id, body, cited):
        yield "the boxes do not lie on the words"


def _is_boxed(client: httpx.Client, document_id: str, body: bytes, cited: Citation) -> bool:
    """A row's labels are boxed where they stand, in the header: its cells and labels are under the boxes in any order."""
    range_ = {"start": cited.start, "end": cited.end}
    under = words(text_under(body, client.get(f"/v1/documents/{document_id}/boxes", params=range_).json()["pages"]))
    if under == words(cited.quote):
        return True
    parts = [words(part) for cell in cited.quote.split(" | ") for part in cell.split(": ")]
    return len(parts) > 1 and all(part in under for part in parts) and len(under) == sum(map(len, parts))


def _page_of(parsed: Parsed, cited: Citation) -> int | None:
    return next((page.number for page in parsed.pages if page.start <= cited.start < page.end), None)
