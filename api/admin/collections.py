"""The pages of collections: all of them, and one with its documents. What changes something is sent to /v1."""

import asyncio
from typing import Any

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.catalog.changes import failures
from ragkv.catalog.collection import collection_with_counts, list_collections
from ragkv.catalog.listing import Wanted, list_documents
from ragkv.db.tenants import collection_ref
from ragkv.parts import Parts
from ragkv.status import Status
from ragkv.tenancy import DEFAULT_COLLECTION

COLLECTIONS_A_PAGE = 50
DOCUMENTS_A_PAGE = 25


@get("/collections")
async def collections_page(
    request: AdminRequest, parts: NamedDependency[Parts], cursor: FromQuery[str | None] = None
) -> Response[str]:
    """The tenant's collections by name."""
    arguments = (parts.database, request.user.tenant_id, COLLECTIONS_A_PAGE, cursor)
    shown = await asyncio.to_thread(list_collections, *arguments)
    return page(request, "collections.html", shown=shown, cursor=cursor, default=DEFAULT_COLLECTION)


@get("/collections/{collection:str}")
async def collection_page(
    collection: FromPath[str],
    request: AdminRequest,
    parts: NamedDependency[Parts],
    status: FromQuery[str] = "",
    name: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """A collection, by id or name, and its documents, newest first: of one status, with a part of the name."""
    chosen = Status(status) if status in list(Status) else None
    shown = await asyncio.to_thread(_collection, collection, chosen, name, cursor, request, parts)
    limit = parts.settings.max_upload_bytes
    filters: dict[str, Any] = {"status": chosen, "name": name, "cursor": cursor, "statuses": list(Status)}
    return page(request, "collection.html", default=DEFAULT_COLLECTION, max_bytes=limit, **shown, **filters)


def _collection(
    collection: str, status: Status | None, name: str, cursor: str | None, request: AdminRequest, parts: Parts
) -> dict[str, Any]:
    tenant_id = request.user.tenant_id
    view = collection_with_counts(collection, parts, tenant_id)
    ref = collection_ref(parts.database, tenant_id, view.id)
    wanted = Wanted(tenant_id, view.id, status, name or None)
    documents = list_documents(parts.database, wanted, DOCUMENTS_A_PAGE, cursor)
    return {"collection": view, "documents": documents, "failures": failures(ref, parts.database)}
