"""/v1/data-sources: folders and object stores that collections are kept in sync with, for callers with the scope
admin."""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Router
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from api.access.auth import administering
from api.http.errors import json_problems, problems
from api.http.methods import delete, get, patch, post
from api.http.observe import note_made
from api.v1.lists import Limit
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.data_sources.data_sources import (
    DEFAULT_INTERVAL_MINUTES,
    MAX_INTERVAL_MINUTES,
    DataSourcePage,
    DataSourceView,
    SourceFilePage,
    add_data_source,
    change_data_source,
    data_source_view,
    list_data_sources,
    list_source_files,
    remove_data_source,
    request_sync,
    retry_files,
)
from ragkv.service.data_sources.statements import FileStatus
from ragkv.settings import Settings

Interval = Annotated[int, "Minutes from one sync to the next; 0: only on request.", Meta(ge=0, le=MAX_INTERVAL_MINUTES)]
Status = Annotated[FileStatus | None, QueryParameter(description="Return only files with this status.")]
NO_SUCH = "No such data source."


class NewDataSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new data source."""

    location: Annotated[
        str,
        "Folder on the service's machine, or URL of an object store: `s3://`, `gs://` or `az://`.",
        Meta(examples=["s3://company/handbook"]),
    ]
    collection: Annotated[str, "Id or name of the collection that is kept in step."] = DEFAULT_COLLECTION
    interval_minutes: Interval = DEFAULT_INTERVAL_MINUTES
    watch: Annotated[
        bool | None,
        "Whether a sync is also due a few seconds after the folder has changed. The default is true for folders "
        "with an interval.",
    ] = None


class DataSourcePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a data source. Omitted fields are unchanged."""

    paused: Annotated[bool | None, "Whether it is paused: no sync begins, and one in progress ends."] = None
    interval_minutes: Interval | None = None
    watch: Annotated[bool | None, "Whether a sync is also due a few seconds after the folder has changed."] = None


class SyncBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sync that is asked for."""

    confirm: Annotated[bool, "Whether the deletions that the last sync held back may be made."] = False


@post(
    "/",
    "Create a data source",
    json_problems(
        NOT_FOUND="No such collection.",
        CONFLICT="The location is already connected to the collection, or the tenant has the maximum number of data sources.",
        UNPROCESSABLE_ENTITY="The location is neither a path nor the URL of an object store, or it is an object store, which cannot be watched.",
    ),
)
def create(
    data: JSONBody[NewDataSource],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
) -> DataSourceView:
    """Create a data source: a collection is kept in sync with the files of a folder, or of a prefix of an object store.

    The service's setting `RAGKV_DATA_SOURCES_ALLOWED` lists the locations that may be read; others are refused with
    403. A worker begins the first sync within seconds.
    """
    source = add_data_source(
        caller.tenant_id,
        data.collection,
        data.location,
        data.interval_minutes,
        database,
        settings,
        data.watch,
    )
    note_made(request, source.id)
    return source


@get("/", "List data sources", problems())
def show(caller: NamedDependency[Caller], database: NamedDependency[Database]) -> DataSourcePage:
    """List the tenant's data sources, oldest first."""
    return DataSourcePage(list_data_sources(caller.tenant_id, database), None)


@get("/{data_source_id:str}", "Get a data source", problems(NOT_FOUND=NO_SUCH))
def show_one(
    data_source_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> DataSourceView:
    """Get a data source with the outcome of its last sync."""
    return data_source_view(caller.tenant_id, data_source_id, database)


@get(
    "/{data_source_id:str}/files",
    "List a data source's files",
    problems(NOT_FOUND=NO_SUCH, UNPROCESSABLE_ENTITY="Invalid cursor."),
)
def files(
    data_source_id: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    status: Status = None,
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> SourceFilePage:
    """List the files of a data source by name, each with its document or the reason why there is none."""
    return list_source_files(caller.tenant_id, data_source_id, status, limit, cursor, database)


@patch(
    "/{data_source_id:str}",
    "Update a data source",
    json_problems(NOT_FOUND=NO_SUCH, UNPROCESSABLE_ENTITY="Only folders can be watched."),
)
def amend(
    data_source_id: FromPath[str],
    data: JSONBody[DataSourcePatch],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
) -> DataSourceView:
    """Update a data source: pause it, which ends a sync in progress; resume it; change its interval; start or stop
    watching its folder."""
    return change_data_source(caller.tenant_id, data_source_id, database, **msgspec.structs.asdict(data))


@post(
    "/{data_source_id:str}/sync",
    "Sync a data source",
    json_problems(NOT_FOUND=NO_SUCH, CONFLICT="It is paused, or no deletions are waiting to be confirmed."),
    status_code=HTTPStatus.ACCEPTED,
)
def sync(
    data_source_id: FromPath[str],
    data: JSONBody[SyncBody],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
) -> DataSourceView:
    """Queue a sync, which a worker begins within seconds.

    With `confirm`, the sync may make the deletions that the last one held back, if they are no more than
    `held_deletions`.
    """
    return request_sync(caller.tenant_id, data_source_id, data.confirm, database)


@post(
    "/{data_source_id:str}/retry",
    "Retry a data source's failed files",
    problems(NOT_FOUND=NO_SUCH, CONFLICT="It is paused."),
    status_code=HTTPStatus.ACCEPTED,
)
def retry(
    data_source_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> DataSourceView:
    """Queue a sync that also reads failed and unreadable files again, even if they did not change."""
    return retry_files(caller.tenant_id, data_source_id, database)


@delete("/{data_source_id:str}", "Delete a data source", problems(NOT_FOUND=NO_SUCH))
def remove(data_source_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]) -> None:
    """Delete a data source. Its documents remain in the collection."""
    remove_data_source(caller.tenant_id, data_source_id, database)


data_sources_router = Router(
    "/v1/data-sources",
    route_handlers=[create, show, show_one, files, amend, sync, retry, remove],
    guards=[administering],
    tags=["data sources"],
)
