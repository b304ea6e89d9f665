"""/v1/files: files that are uploaded first and attached to vector stores later."""

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Router
from litestar.datastructures import UploadFile
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, MultipartBody, QueryParameter
from litestar.response import File

from api.access.auth import reading, writing
from api.access.concurrency import uploading
from api.http.bodies import OF_UPLOADS
from api.http.files import attachment
from api.http.methods import delete, get, post
from api.http.observe import note_made
from api.openai.errors import errors
from api.openai.fields import After, Created, ListPage, Order
from api.v1.documents import FORM_BYTES
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.page import PageRequest
from ragkv.service.documents.removal import Removal
from ragkv.service.files.attachments import delete_file
from ragkv.service.files.uploads import FileView, file_view, keep_file, list_files, uploaded_file
from ragkv.settings import Settings

MAX_LISTED = 10_000
NOT_FOUND = "No such file."

Purpose = Literal["assistants", "user_data"]
"""Purposes for which files are attached to vector stores."""


class FileForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file to upload."""

    file: Annotated[UploadFile, "File to upload."]
    purpose: Annotated[Purpose, "Purpose of the file. Both values have the same effect."]


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file."""

    id: str
    bytes: Annotated[int, "Size of the file in bytes."]
    created_at: Created
    filename: Annotated[str, "Name of the file."]
    purpose: Annotated[str, "Purpose of the file."]
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"

    @classmethod
    def of(cls, view: FileView) -> "FileObject":
        return cls(
            id=view.id,
            bytes=view.bytes,
            created_at=int(view.created_at.timestamp()),
            filename=view.name,
            purpose=view.purpose,
        )


class FilePage(ListPage, frozen=True, kw_only=True):
    """A page of files."""

    data: Annotated[list[FileObject], "Files."]


class FileDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation that a file was deleted."""

    id: Annotated[str, "Id of the deleted file."]
    object: Literal["file"] = "file"
    deleted: Annotated[bool, "Always true."] = True


@post(
    "/",
    "Upload a file",
    errors(
        REQUEST_ENTITY_TOO_LARGE="The file is too large, or the tenant has no room for more bytes.",
        INSUFFICIENT_STORAGE="The disk is almost full.",
    ),
    writing,
    uploading,
    status_code=HTTPStatus.OK,
)
def create(
    data: MultipartBody[FileForm],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    file_store: NamedDependency[FileStore],
) -> FileObject:
    """Upload a file, to be attached to vector stores. Uploading the same bytes again creates another file."""
    file = data.file
    view = keep_file(caller.tenant_id, file.filename, data.purpose, file.file, database, settings, file_store)
    note_made(request, view.id)
    return FileObject.of(view)


@get("/", "List files", errors(NOT_FOUND="No such file in `after`."), reading)
def index(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    limit: Annotated[
        int, QueryParameter(ge=1, le=MAX_LISTED, description="Maximum number of items on a page.")
    ] = MAX_LISTED,
    order: Order = "desc",
    after: After = None,
    purpose: FromQuery[Purpose | None] = None,
) -> FilePage:
    """List the tenant's files."""
    page = PageRequest(limit, newest_first=order == "desc", after=after)
    return FilePage.of(list_files(caller.tenant_id, page, purpose, database), FileObject.of)


@get("/{file_id:str}", "Get a file", errors(NOT_FOUND=NOT_FOUND), reading)
def show(file_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]) -> FileObject:
    """Get a file by its id."""
    return FileObject.of(file_view(caller.tenant_id, file_id, database))


@get("/{file_id:str}/content", "Download a file", errors(NOT_FOUND=NOT_FOUND), reading)
def content(
    file_id: FromPath[str],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    file_store: NamedDependency[FileStore],
) -> File:
    """Download a file, byte for byte. It is sent as an attachment, so browsers do not display it."""
    file, name = uploaded_file(caller.tenant_id, file_id, database, file_store)
    return attachment(request, file, name)


@delete("/{file_id:str}", "Delete a file", errors(NOT_FOUND=NOT_FOUND), writing, status_code=HTTPStatus.OK)
def remove(
    file_id: FromPath[str],
    caller: NamedDependency[Caller],
    removal: NamedDependency[Removal],
) -> FileDeleted:
    """Delete a file and detach it from all vector stores."""
    delete_file(caller.tenant_id, file_id, removal)
    return FileDeleted(id=file_id)


def files_router(settings: Settings) -> Router:
    handlers = [create, index, show, content, remove]
    limit = settings.max_upload_bytes + FORM_BYTES
    return Router(
        "/v1/files", route_handlers=handlers, tags=["openai: files"], request_max_body_size=limit, opt=OF_UPLOADS
    )
