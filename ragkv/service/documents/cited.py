"""The text that a citation points to: the pages that it may be on, and its place within the text of the page."""

import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated

import msgspec

from ragkv.errors import Rejected
from ragkv.service.base.database import Database
from ragkv.service.base.status import outdated
from ragkv.service.documents.chunk_statements import chunks_between, chunks_near, chunks_on_page, to_chunk
from ragkv.service.documents.documents import find_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ragkv.chunk import Chunk

Outdated = Annotated[
    str | None,
    "Reason why the text is from an earlier file than the document's present one, which has not been read yet or could "
    "not be read; otherwise null.",
]
MAX_CHARACTERS = 10_000
_AROUND = 1_000
_BEFORE = 10_000
_SIDE = 6_000
_NEIGHBOURS = 12


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document's text. Characters [start, end) of it are cited; none are if it only says what stands
    before."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Cited:
    """The cited text, in the order of the text, behind other text of its first page. It lies on the pages from
    `first_page` to `last_page`, which is None for the end of the document."""

    first_page: int
    last_page: int | None
    pieces: tuple[Piece, ...]


class CitedPage(msgspec.Struct, frozen=True):
    """Cited words between the text of the page on which they begin, at most 6,000 characters on either side; where the
    format has no pages, between the text around them. Headings are not in the text: `title` has those above the words,
    behind the document's title. `outdated`: the reason why they are from an earlier file."""

    name: Annotated[str, "Name of the document's file."]
    title: Annotated[str, "Title of the document with the headings above the words, which are not in the text."]
    page: Annotated[
        int | None, "Number of the page on which the words begin, starting from 1; null where the format has no pages."
    ]
    page_label: Annotated[
        str | None, 'Page as a reader calls it, such as "slide 3"; null where the format has no pages.'
    ]
    before: Annotated[str, "Text of the page before the words."]
    cited: Annotated[str, "The words."]
    after: Annotated[str, "Text of the page after the words."]
    outdated: Outdated = None


def checksum_of(words: str) -> str:
    """Eight hexadecimal digits that tell whether words are still there. White space does not count: chunks have none at
    their ends, and are others after some re-reads."""
    return f"{zlib.crc32(''.join(words.split()).encode()):08x}"


def cited_page(
    tenant_id: str, document_id: str, start: int, end: int, database: Database, checksum: str | None = None
) -> CitedPage:
    """The page around characters [start, end) of a document's text. Raises NotFound for the document, Rejected for a
    range that is too long, or in which there is no text, or none with this checksum."""
    _check_range(start, end)
    with database.reading() as session:
        document = find_document(session, tenant_id, document_id)
        rows = list(session.scalars(chunks_between(document_id, start, end)))
        if not rows:
            raise Rejected(f"the document has no text at characters {start:,} to {end:,}")
        near = chunks_near(document_id, rows[0].ordinal - _NEIGHBOURS, rows[-1].ordinal + _NEIGHBOURS)
        chunks = [to_chunk(row, document.media_type) for row in session.scalars(near)]
        first_chunk = to_chunk(rows[0], document.media_type)
    cited = "\n".join(chunk.text[max(start - chunk.start, 0) : max(end - chunk.start, 0)] for chunk in chunks).strip()
    _check_words(cited, checksum)
    offset = max(start - first_chunk.start, 0)
    page = first_chunk.page_at(offset)
    return CitedPage(
        document.earlier_name or document.name,
        first_chunk.title,
        page,
        first_chunk.page_label_at(offset),
        "\n".join(_parts(chunks, page, 0, start)).lstrip()[-_SIDE:],
        cited,
        "\n".join(_parts(chunks, page, end, chunks[-1].end)).rstrip()[:_SIDE],
        outdated(document),
    )


def _parts(chunks: "Sequence[Chunk]", page: int | None, start: int, end: int) -> "Iterator[str]":
    """Text of characters [start, end) of the document on a page, chunk by chunk; adjacent chunks yield an empty string,
    so that words are not joined."""
    for chunk in (candidate for candidate in chunks if candidate.start <= end and candidate.end >= start):
        left, right = chunk.on_page(page)
        yield chunk.text[max(left, start - chunk.start) : max(min(right, end - chunk.start), 0)]


def cited_text(
    tenant_id: str, document_id: str, start: int, end: int, database: Database, checksum: str | None = None
) -> Cited:
    """Characters [start, end) of a document's text, to be found on its pages. Raises NotFound for the document,
    Rejected for a range that is too long, or in which there is no text with a page, or none with this checksum."""
    _check_range(start, end)
    with database.reading() as session:
        find_document(session, tenant_id, document_id)
        rows = list(session.scalars(chunks_between(document_id, start, end)))
        first_page = rows[0].page if rows else None
        if first_page is None:
            raise Rejected(f"the document has no text on pages at characters {start:,} to {end:,}")
        following = rows[-1].ordinal + 1
        behind = session.scalars(chunks_near(document_id, following, following)).one_or_none()
        # As much of the page before the chunks as fits: words that occur twice are told apart by it.
        texts = [chunk.text for chunk in session.scalars(chunks_on_page(document_id, first_page, rows[0].ordinal))]
        sums = accumulate(map(len, texts))
        lead = [Piece(text, 0, 0) for text, total in zip(texts, sums, strict=True) if total <= _BEFORE]
    pieces = []
    for row in rows:
        left, right = max(start - row.start, 0), min(end - row.start, len(row.text))
        shown_from = max(left - _AROUND, 0)  # with the neighbourhood of what is cited
        pieces.append(Piece(row.text[shown_from : right + _AROUND], left - shown_from, right - shown_from))
    _check_words("".join(piece.text[piece.start : piece.end] for piece in pieces), checksum)
    return Cited(first_page, behind.page if behind else None, (*reversed(lead), *pieces))


def _check_range(start: int, end: int) -> None:
    if not 0 <= start < end <= start + MAX_CHARACTERS:
        raise Rejected(f"start must be before end, and the range at most {MAX_CHARACTERS:,} characters long")


def _check_words(words: str, checksum: str | None) -> None:
    if checksum is not None and checksum != checksum_of(words):
        raise Rejected("the document was read again since then, and has other words at this place")
