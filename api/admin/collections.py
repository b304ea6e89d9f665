"""The pages of collections and of the data sources that fill them: lists, and one with its documents or files. Changes
are requests to /v1."""

from collections.abc import Iterable
from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from api.admin.shell import AdminRequest, page
from ragkv.errors import NotFound
from ragkv.file_types import READ, READ_KINDS
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import CompressionMethod
from ragkv.service.answer_cache.ring import AnswerRing
from ragkv.service.base.database import Database
from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.status import Status
from ragkv.service.base.tenants import DEFAULT_COLLECTION, collection_ref
from ragkv.service.collections.collections import (
    CollectionView,
    collection_view,
    collection_with_counts,
    list_collections,
)
from ragkv.service.data_sources.data_sources import (
    DEFAULT_INTERVAL_MINUTES,
    MAX_INTERVAL_MINUTES,
    data_source_view,
    list_data_sources,
    list_source_files,
)
from ragkv.service.data_sources.statements import FileStatus
from ragkv.service.documents.changes import failures
from ragkv.service.documents.listing import DocumentFilter, list_documents
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.rules import rule_view
from ragkv.settings import Settings
from ragkv.text import MAX_FILE_NAME_CHARS, one_spelling

COLLECTIONS_A_PAGE = 50
DOCUMENTS_A_PAGE = 25
FILES_A_PAGE = 50


@get("/collections", sync_to_thread=True)
def collections_page(
    request: AdminRequest, database: NamedDependency[Database], cursor: FromQuery[str | None] = None
) -> Response[str]:
    """The tenant's collections by name."""
    shown = list_collections(request.user.tenant_id, COLLECTIONS_A_PAGE, cursor, database)
    return page(request, "collections.html", shown=shown, cursor=cursor, default=DEFAULT_COLLECTION)


@get("/collections/{collection:str}", sync_to_thread=True)
def collection_page(
    collection: FromPath[str],
    request: AdminRequest,
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    answer_ring: NamedDependency[AnswerRing],
    status: FromQuery[str] = "",
    name: Annotated[str, QueryParameter(max_length=MAX_FILE_NAME_CHARS)] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """A collection, by id or name, and its documents, newest first: of one status, with a part of the name."""
    document_status = Status(status) if status in list(Status) else None
    view = collection_with_counts(request.user.tenant_id, collection, database, answer_ring)
    ref = collection_ref(request.user.tenant_id, view.id, database)
    criteria = DocumentFilter(request.user.tenant_id, view.id, document_status, name or None)
    return page(
        request,
        "collection.html",
        collection=view,
        documents=list_documents(criteria, DOCUMENTS_A_PAGE, cursor, database),
        failures=failures(ref, database),
        rule=rule_view(KVOwner(ref.tenant_id, ref.collection_id), database, settings),
        service_rule=settings.kv_rule,
        has_object_store=settings.kv_remote is not None,
        formats=list(KVFormat),
        compressions=list(CompressionMethod),
        default=DEFAULT_COLLECTION,
        suffixes=",".join(READ),
        kinds=READ_KINDS,
        max_bytes=settings.max_upload_bytes,
        status=document_status,
        name=name,
        longest_name=MAX_FILE_NAME_CHARS,
        cursor=cursor,
        statuses=list(Status),
    )


def collections_of(tenant_id: str, database: Database, *requested: str) -> list[CollectionView]:
    """The tenant's first collections in the order of their names, the default one before them; where they are not among
    them, those requested by id or name too."""
    collections = list_collections(tenant_id, MAX_PAGE, None, database).items
    for name in (DEFAULT_COLLECTION, *requested):
        if name and chosen_collection(collections, name) is None:
            try:
                collections.insert(0, collection_view(tenant_id, name, database))
            except NotFound:
                continue
    return sorted(collections, key=lambda collection: collection.name != DEFAULT_COLLECTION)


def names_of_collections(tenant_id: str, shown: Iterable[str | None], database: Database) -> dict[str, str]:
    """Name by id: of the collections to choose from, and of those shown."""
    return {
        collection.id: collection.name
        for collection in collections_of(tenant_id, database, *(collection_id or "" for collection_id in shown))
    }


def chosen_collection(collections: Iterable[CollectionView], requested: str) -> CollectionView | None:
    """The one whose id or name is given in a page's address, if it is among them."""
    return next(
        (
            collection
            for collection in collections
            if requested == collection.id or one_spelling(requested) == collection.name
        ),
        None,
    )


@get("/data-sources", sync_to_thread=True)
def data_sources_page(
    request: AdminRequest, database: NamedDependency[Database], settings: NamedDependency[Settings]
) -> Response[str]:
    """Render the tenant's data sources with the outcome of their last syncs."""
    tenant_id = request.user.tenant_id
    sources = list_data_sources(tenant_id, database)
    return page(
        request,
        "data_sources.html",
        sources=sources,
        collections=names_of_collections(tenant_id, (source.collection_id for source in sources), database),
        allows_any=bool(settings.data_sources_allowed.strip()),
        interval=DEFAULT_INTERVAL_MINUTES,
        longest=MAX_INTERVAL_MINUTES,
    )


@get("/data-sources/{data_source_id:str}", sync_to_thread=True)
def data_source_page(
    request: AdminRequest,
    data_source_id: FromPath[str],
    database: NamedDependency[Database],
    status: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render a data source and its files by name, all or those in one status."""
    tenant_id = request.user.tenant_id
    file_status = FileStatus(status) if status in list(FileStatus) else None
    source = data_source_view(tenant_id, data_source_id, database)
    counts = {name: getattr(source.files, name) for name in FileStatus}
    return page(
        request,
        "data_source.html",
        source=source,
        collection=collection_view(tenant_id, source.collection_id, database).name,
        counts=counts,
        status=file_status,
        files=list_source_files(tenant_id, data_source_id, file_status, FILES_A_PAGE, cursor, database),
        cursor=cursor,
        longest=MAX_INTERVAL_MINUTES,
    )
