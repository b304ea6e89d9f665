"""The page of one document: facts, metadata, one of its pages as it looks, and chunks with the state of their KV."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from api.admin.pages import NoSheet, Sheet, sheet
from api.admin.shell import AdminRequest, page
from api.admin.source import Place, mark
from api.v1.pages import PICTURED
from ingest.page_views import PageViews
from ragkv.catalog.cited import CitedPage, cited_page
from ragkv.catalog.collection import collection_view
from ragkv.catalog.listing import chunks_before, chunks_from, list_chunks
from ragkv.catalog.mail_attachments import document_detail
from ragkv.errors import Rejected
from ragkv.parts import Parts

CHUNKS_A_PAGE = 20


@get("/documents/{document_id:str}")
async def document_page(
    document_id: FromPath[str],
    request: AdminRequest,
    parts: NamedDependency[Parts],
    page_views: NamedDependency[PageViews],
    at: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
    number: Annotated[int | None, QueryParameter(name="page", ge=1)] = None,
) -> Response[str]:
    """Render a document. `at`=START-END marks these characters of the text and starts the page at their chunk; a PDF
    or an image then shows its page with them, or page `number`; other formats the text of their page, slide or
    sheet. With `at`=START-END-CHECKSUM it does so as long as the words there have this checksum."""
    tenant_id, asked = request.user.tenant_id, Place.of(at)
    around = None if asked is None else await asyncio.to_thread(_around, tenant_id, document_id, asked, parts)
    is_gone = asked is not None and asked.checksum is not None and around is None
    place = None if is_gone else asked
    facts = await asyncio.to_thread(_facts, tenant_id, document_id, place, cursor, parts)
    seen: Sheet | NoSheet | CitedPage | None = around
    has_pages = facts["document"].media_type.startswith(PICTURED)
    if has_pages:
        seen = await sheet(page_views, tenant_id, document_id, number, place) if place or number else None
    return page(request, "document.html", sheet=seen, place=place, is_gone=is_gone, has_pages=has_pages, **facts)


def _around(tenant_id: str, document_id: str, place: Place, parts: Parts) -> CitedPage | None:
    """The text around a place; None where there is none, or other words: the document was read again."""
    with suppress(Rejected):
        return cited_page(tenant_id, document_id, place.start, place.end, parts.database, place.checksum)
    return None


def _facts(tenant_id: str, document_id: str, place: Place | None, cursor: str | None, parts: Parts) -> dict[str, Any]:
    """The page's data of a document, from the database."""
    database = parts.database
    view = document_detail(tenant_id, document_id, database)
    if place is not None and cursor is None:
        cursor = chunks_from(tenant_id, document_id, place.start, database)
    chunks = list_chunks(tenant_id, document_id, CHUNKS_A_PAGE, cursor, database, parts.kv_store)
    return {
        "document": view,
        "collection": collection_view(tenant_id, view.collection_id, database),
        "chunks": [mark(chunk, place) for chunk in chunks.items],
        "previous": chunks_before(chunks, CHUNKS_A_PAGE),
        "next": chunks.next,
    }
