"""/v1/vector_stores/ID/files: files in a collection."""

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from api.access.auth import reading, writing
from api.http.methods import delete, get, post
from api.http.observe import note_made
from api.openai.errors import errors
from api.openai.fields import PAGED, Attributes, AutoChunking, Id
from api.openai.store_views import FileStatus, StoreFile, StoreFileDeleted, StoreFilePage, polled, statuses_of
from ragkv.service.base.database import Database
from ragkv.service.base.page import PageRequest
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.removal import Removal
from ragkv.service.files.attachments import (
    Attach,
    attach_files,
    detach_file,
    entry_of,
    list_entries,
    set_metadata,
    texts_of,
)

NOT_FOUND = "No such vector store, or no such file in it."

StatusFilter = Annotated[FileStatus | None, QueryParameter(description="Return only files with this status.")]


class NewStoreFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file to attach to a vector store."""

    file_id: Annotated[Id, "Id of the file."]
    attributes: Annotated[
        Attributes | None, "Attributes of the file. If it is already attached, they replace its attributes."
    ] = None
    chunking_strategy: Annotated[AutoChunking | None, "Chunking strategy; only `auto` is supported."] = None

    def to_attach(self) -> Attach:
        return Attach(self.file_id, None if self.attributes is None else dict(self.attributes))


class AttributesChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New attributes of a file."""

    attributes: Annotated[Attributes | None, "New attributes, which replace all existing ones."]


class TextOfFile(msgspec.Struct, frozen=True):
    """The text of one chunk."""

    text: Annotated[str, "Text of the chunk."]
    type: Literal["text"] = "text"


class ContentPage(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file, chunk by chunk."""

    data: Annotated[list[TextOfFile], "Texts of the chunks, in order."]
    has_more: Annotated[bool, "Always false: all items are returned."] = False
    next_page: Annotated[None, "Always null."] = None
    object: Literal["vector_store.file_content.page"] = "vector_store.file_content.page"


@post(
    "/",
    "Attach a file",
    errors(
        NOT_FOUND="No such vector store, or no such file.",
        REQUEST_ENTITY_TOO_LARGE="The tenant has no room for more documents.",
    ),
    writing,
    status_code=HTTPStatus.OK,
)
def create(
    store: NamedDependency[CollectionRef],
    data: JSONBody[NewStoreFile],
    request: Request[Any, Any, Any],
    database: NamedDependency[Database],
    intake: NamedDependency[Intake],
) -> StoreFile:
    """Attach a file to a vector store and queue it for ingestion. Files with the same bytes share one document."""
    attach_files(store, [data.to_attach()], intake)
    note_made(request, data.file_id)
    return StoreFile.of(entry_of(store, data.file_id, database))


@get("/", "List a vector store's files", errors(NOT_FOUND=NOT_FOUND), reading, dependencies=PAGED)
def index(
    store: NamedDependency[CollectionRef],
    database: NamedDependency[Database],
    page: NamedDependency[PageRequest],
    filter: StatusFilter = None,  # noqa: A002 - the wire's name
) -> StoreFilePage:
    """List the files of a vector store, including documents that were uploaded to the collection directly."""
    return StoreFilePage.of(list_entries(store, page, statuses_of(filter), database), StoreFile.of)


@get("/{file_id:str}", "Get a vector store's file", errors(NOT_FOUND=NOT_FOUND), reading)
def show(
    store: NamedDependency[CollectionRef],
    file_id: FromPath[str],
    database: NamedDependency[Database],
) -> Response[StoreFile]:
    """Get a file of a vector store with the status of its ingestion."""
    return polled(StoreFile.of(entry_of(store, file_id, database)))


@post("/{file_id:str}", "Update a file's attributes", errors(NOT_FOUND=NOT_FOUND), writing, status_code=HTTPStatus.OK)
def change(
    store: NamedDependency[CollectionRef],
    file_id: FromPath[str],
    data: JSONBody[AttributesChange],
    database: NamedDependency[Database],
) -> StoreFile:
    """Replace all attributes of a vector store's file."""
    return StoreFile.of(set_metadata(store, file_id, dict(data.attributes or {}), database))


@delete("/{file_id:str}", "Detach a file", errors(NOT_FOUND=NOT_FOUND), writing, status_code=HTTPStatus.OK)
def remove(
    store: NamedDependency[CollectionRef],
    file_id: FromPath[str],
    removal: NamedDependency[Removal],
) -> StoreFileDeleted:
    """Detach a file from a vector store and delete its chunks, vectors and KV there. The file itself is kept.

    A document that other files share, or that was uploaded to the collection directly, is kept.
    """
    detach_file(store, file_id, removal)
    return StoreFileDeleted(id=file_id)


@get("/{file_id:str}/content", "Get a file's text", errors(NOT_FOUND=NOT_FOUND), reading)
def content(
    store: NamedDependency[CollectionRef],
    file_id: FromPath[str],
    database: NamedDependency[Database],
) -> ContentPage:
    """Get the text of a file as the chunks that are searched. The list is empty until the file has been parsed."""
    return ContentPage(data=[TextOfFile(text) for text in texts_of(store, file_id, database)])


store_files_router = Router(
    "/{vector_store_id:str}/files", route_handlers=[create, index, show, change, remove, content]
)
