"""The pages of documents: one with metadata, one of its pages as it looks, and chunks with their KV; and the jobs that
read documents."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from api.admin.shell import AdminRequest, page
from api.v1.pages import problem_of
from api.v1.passages import PICTURED
from ingest.page_views import PageViews
from ingest.parse.quotes import BoxedPage
from ragkv.errors import RagKVError, Rejected
from ragkv.kv.store import KVStore
from ragkv.service.base.database import Database
from ragkv.service.base.status import JobStatus
from ragkv.service.collections.collections import collection_view
from ragkv.service.documents.cited import CitedPage, cited_page
from ragkv.service.documents.jobs import jobs_by_status, list_jobs
from ragkv.service.documents.listing import ChunkView, chunks_before, chunks_from, list_chunks
from ragkv.service.documents.mail_attachments import document_detail

CHUNKS_A_PAGE = 20
_PLACE = re.compile(r"(\d{1,9})-(\d{1,9})(?:-([0-9a-f]{8}))?")
JOBS_A_PAGE = 25


@dataclass(frozen=True, slots=True)
class TextRange:
    """Characters [start, end) of a document's text. `checksum`: of the words that a citation found there."""

    start: int
    end: int
    checksum: str | None = None

    @classmethod
    def of(cls, text: str) -> "TextRange | None":
        """Parse START-END or START-END-CHECKSUM; None for any other text and for an empty range."""
        match = _PLACE.fullmatch(text)
        place = cls(int(match[1]), int(match[2]), match[3]) if match else None
        return place if place and place.start < place.end else None

    def __str__(self) -> str:
        """As it was parsed."""
        return f"{self.start}-{self.end}" + (f"-{self.checksum}" if self.checksum else "")


@dataclass(frozen=True, slots=True)
class Marked:
    """A chunk with its text split around the place: `marked` is empty if the place lies outside the chunk."""

    chunk: ChunkView
    before: str
    marked: str
    after: str


def mark(chunk: ChunkView, place: TextRange | None) -> Marked:
    text = chunk.text
    if place is None or place.end <= chunk.start or chunk.end <= place.start:
        return Marked(chunk, text, "", "")
    start, end = max(place.start - chunk.start, 0), place.end - chunk.start
    return Marked(chunk, text[:start], text[start:end], text[end:])


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page of `num_pages`. `lit`: the pages on which the place has boxes; `problem`: why it has none."""

    page: BoxedPage
    num_pages: int
    lit: tuple[int, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class NoSheet:
    """The reason why a page cannot be shown."""

    problem: str


@get("/documents/{document_id:str}")
async def document_page(
    document_id: FromPath[str],
    request: AdminRequest,
    database: NamedDependency[Database],
    kv_store: NamedDependency[KVStore],
    page_views: NamedDependency[PageViews],
    at: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
    number: Annotated[int | None, QueryParameter(name="page", ge=1)] = None,
) -> Response[str]:
    """Render a document. `at`=START-END marks these characters of the text and starts the page at their chunk; a PDF
    or an image then shows its page with them, or page `number`; other formats the text of their page, slide or
    sheet. With `at`=START-END-CHECKSUM it does so as long as the words there have this checksum."""
    tenant_id, cited = request.user.tenant_id, TextRange.of(at)
    around: CitedPage | None = None
    if cited is not None:
        words = (cited.start, cited.end, database, cited.checksum)
        with suppress(Rejected):  # there is no text, or there are other words: the document was read again
            around = await asyncio.to_thread(cited_page, tenant_id, document_id, *words)
    is_gone = cited is not None and cited.checksum is not None and around is None
    place = None if is_gone else cited
    facts = await asyncio.to_thread(_facts, tenant_id, document_id, place, cursor, database, kv_store)
    seen: Sheet | NoSheet | CitedPage | None = around
    has_pages = facts["document"].media_type.startswith(PICTURED)
    if has_pages:
        seen = await _sheet(page_views, tenant_id, document_id, number, place) if place or number else None
    return page(request, "document.html", sheet=seen, place=place, is_gone=is_gone, has_pages=has_pages, **facts)


def _facts(
    tenant_id: str,
    document_id: str,
    place: TextRange | None,
    cursor: str | None,
    database: Database,
    kv_store: KVStore,
) -> dict[str, Any]:
    """The page's data of a document, from the database."""
    view = document_detail(tenant_id, document_id, database)
    if place is not None and cursor is None:
        cursor = chunks_from(tenant_id, document_id, place.start, database)
    chunks = list_chunks(tenant_id, document_id, CHUNKS_A_PAGE, cursor, database, kv_store)
    return {
        "document": view,
        "collection": collection_view(tenant_id, view.collection_id, database),
        "chunks": [mark(chunk, place) for chunk in chunks.items],
        "previous": chunks_before(chunks, CHUNKS_A_PAGE),
        "next": chunks.next,
    }


async def _sheet(
    page_views: PageViews, tenant_id: str, document_id: str, number: int | None, place: TextRange | None
) -> Sheet | NoSheet:
    """The page `number` of a PDF document or image as it looks; without a number, the first page on which the place has
    boxes."""
    lit: dict[int, BoxedPage] = {}
    problem = None
    try:
        if place is not None:
            cited = (place.start, place.end, place.checksum)
            located = await page_views.threads.run(page_views.boxes, tenant_id, document_id, *cited)
            problem = problem_of(located)
            lit = {page.number: page for page in located.pages if page.boxes}
            shown = lit.get(number or min(lit, default=0)) or next(
                (page for page in located.pages if number in {None, page.number}), None
            )
            if shown is not None:
                return Sheet(shown, located.num_pages, tuple(lit), problem)
        page, num_pages = await page_views.threads.run(page_views.page, tenant_id, document_id, number or 1)
    except RagKVError as error:
        return NoSheet(str(error))
    return Sheet(page, num_pages, tuple(lit), problem)


@get("/jobs", sync_to_thread=True)
def jobs_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    status: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the tenant's jobs, newest first, all or of one status. A failed job is retried through its document."""
    job_status = JobStatus(status) if status in list(JobStatus) else None
    tenant_id = request.user.tenant_id
    jobs = list_jobs(tenant_id, job_status, JOBS_A_PAGE, cursor, database)
    counts = jobs_by_status(tenant_id, database)
    return page(request, "jobs.html", jobs=jobs, counts=counts, status=job_status, cursor=cursor)
