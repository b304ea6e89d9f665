"""The pages of data sources: the list, and one of them with its files. Changes are requests to /v1/data-sources."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery

from api.admin.collections import names_of_collections
from api.admin.shell import AdminRequest, page
from ragkv.service.base.database import Database
from ragkv.service.collections.collections import collection_view
from ragkv.service.data_sources.data_sources import (
    DEFAULT_INTERVAL_MINUTES,
    MAX_INTERVAL_MINUTES,
    data_source_view,
    list_data_sources,
    list_source_files,
)
from ragkv.service.data_sources.statements import FileStatus
from ragkv.settings import Settings

FILES_A_PAGE = 50


@get("/data-sources", sync_to_thread=True)
def data_sources_page(
    request: AdminRequest, database: NamedDependency[Database], settings: NamedDependency[Settings]
) -> Response[str]:
    """Render the tenant's data sources with the outcome of their last syncs."""
    tenant_id = request.user.tenant_id
    return page(
        request,
        "data_sources.html",
        sources=list_data_sources(tenant_id, database),
        collections=names_of_collections(tenant_id, database),
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
