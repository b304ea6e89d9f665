"""The page of one document: facts, metadata, and chunks with the state of their KV."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery

from api.admin.shell import AdminRequest, page
from api.admin.source import Place, mark
from ragkv.catalog.collection import collection_view
from ragkv.catalog.documents import document_view
from ragkv.catalog.listing import chunks_before, chunks_from, list_chunks
from ragkv.parts import Parts

CHUNKS_A_PAGE = 20


@get("/documents/{document_id:str}", sync_to_thread=True)
def document_page(
    document_id: FromPath[str],
    request: AdminRequest,
    parts: NamedDependency[Parts],
    at: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render a document. `at`=START-END marks these characters of the text and starts the page at their chunk."""
    database, tenant_id = parts.database, request.user.tenant_id
    view, place = document_view(tenant_id, document_id, database), Place.of(at)
    if place is not None and cursor is None:
        cursor = chunks_from(tenant_id, document_id, place.start, database)
    chunks = list_chunks(tenant_id, document_id, CHUNKS_A_PAGE, cursor, database, parts.kv_store)
    return page(
        request,
        "document.html",
        document=view,
        collection=collection_view(tenant_id, view.collection_id, database),
        chunks=[mark(chunk, place) for chunk in chunks.items],
        place=place,
        previous=chunks_before(chunks, CHUNKS_A_PAGE),
        next=chunks.next,
    )
