"""/v1/vector_stores/ID/files: files in a collection."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from litestar import Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from api.access.auth import reading, writing
from api.openai.errors import errors
from api.openai.fields import Attributes, AutoChunking, Id
from api.openai.paging import PAGED
from api.openai.store_views import FileStatus, StoreFile, StoreFileDeleted, StoreFilePage, statuses_of
from ragkv.access.caller import Caller
from ragkv.catalog.attachments import Attach, attach_files, describe, detach_file, entry_of, list_entries, texts_of
from ragkv.db.tenants import collection_ref
from ragkv.page import PageRequest
from ragkv.parts import Parts

NOT_FOUND = "No such vector store, or no such file in it."

StatusFilter = Annotated[FileStatus | None, QueryParameter(description="Return only files with this status.")]


class NewStoreFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file to attach to a vector store."""

    file_id: Id
    attributes: Attributes | None = None
    chunking_strategy: AutoChunking | None = None

    def to_attach(self) -> Attach:
        return Attach(self.file_id, None if self.attributes is None else dict(self.attributes))


class AttributesChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New attributes of a file."""

    attributes: Attributes | None


class TextOfFile(msgspec.Struct, frozen=True):
    """The text of one chunk."""

    text: str
    type: Literal["text"] = "text"


class ContentPage(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file, chunk by chunk."""

    data: list[TextOfFile]
    has_more: bool = False
    next_page: None = None
    object: Literal["vector_store.file_content.page"] = "vector_store.file_content.page"


@post(
    "/",
    status_code=HTTPStatus.OK,
    guards=[writing],
    summary="Attach a file",
    responses=errors(NOT_FOUND="No such vector store, or no such file."),
)
async def create(
    vector_store_id: FromPath[str],
    data: JSONBody[NewStoreFile],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> StoreFile:
    """Attach a file to a vector store and queue it for ingestion. Files with the same bytes share one document."""
    return await asyncio.to_thread(_attach, vector_store_id, data, caller, parts)


@get(
    "/",
    guards=[reading],
    summary="List a vector store's files",
    responses=errors(NOT_FOUND=NOT_FOUND),
    dependencies=PAGED,
)
async def index(
    vector_store_id: FromPath[str],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
    page: NamedDependency[PageRequest],
    filter: StatusFilter = None,  # noqa: A002 - the wire's name
) -> StoreFilePage:
    """List the files of a vector store, including documents that were uploaded to the collection directly."""
    return await asyncio.to_thread(_list, vector_store_id, page, filter, caller, parts)


@get("/{file_id:str}", guards=[reading], summary="Get a vector store's file", responses=errors(NOT_FOUND=NOT_FOUND))
async def show(
    vector_store_id: FromPath[str],
    file_id: FromPath[str],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> StoreFile:
    """Get a file of a vector store with the status of its ingestion."""
    return await asyncio.to_thread(_show, vector_store_id, file_id, caller, parts)


@post(
    "/{file_id:str}",
    status_code=HTTPStatus.OK,
    guards=[writing],
    summary="Update a file's attributes",
    responses=errors(NOT_FOUND=NOT_FOUND),
)
async def change(
    vector_store_id: FromPath[str],
    file_id: FromPath[str],
    data: JSONBody[AttributesChange],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> StoreFile:
    """Replace all attributes of a vector store's file."""
    return await asyncio.to_thread(_change, vector_store_id, file_id, data, caller, parts)


@delete(
    "/{file_id:str}",
    status_code=HTTPStatus.OK,
    guards=[writing],
    summary="Detach a file",
    responses=errors(NOT_FOUND=NOT_FOUND),
)
async def remove(
    vector_store_id: FromPath[str],
    file_id: FromPath[str],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> StoreFileDeleted:
    """Detach a file from a vector store and delete its chunks, vectors and KV there. The file itself is kept."""
    await asyncio.to_thread(_detach, vector_store_id, file_id, caller, parts)
    return StoreFileDeleted(id=file_id)


@get("/{file_id:str}/content", guards=[reading], summary="Get a file's text", responses=errors(NOT_FOUND=NOT_FOUND))
async def content(
    vector_store_id: FromPath[str],
    file_id: FromPath[str],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> ContentPage:
    """Get the text of a file as the chunks that are searched. The list is empty until the file has been parsed."""
    return await asyncio.to_thread(_content, vector_store_id, file_id, caller, parts)


def store_files_router() -> Router:
    handlers = [create, index, show, change, remove, content]
    return Router("/{vector_store_id:str}/files", route_handlers=handlers)


def _attach(vector_store_id: str, body: NewStoreFile, caller: Caller, parts: Parts) -> StoreFile:
    ref = collection_ref(parts.database, caller.tenant_id, vector_store_id)
    attach_files([body.to_attach()], parts, ref)
    return StoreFile.of(entry_of(body.file_id, parts.database, ref))


def _list(
    vector_store_id: str, page: PageRequest, status: FileStatus | None, caller: Caller, parts: Parts
) -> StoreFilePage:
    ref = collection_ref(parts.database, caller.tenant_id, vector_store_id)
    return StoreFilePage.of(list_entries(parts.database, ref, page, statuses_of(status)))


def _show(vector_store_id: str, file_id: str, caller: Caller, parts: Parts) -> StoreFile:
    ref = collection_ref(parts.database, caller.tenant_id, vector_store_id)
    return StoreFile.of(entry_of(file_id, parts.database, ref))


def _change(vector_store_id: str, file_id: str, body: AttributesChange, caller: Caller, parts: Parts) -> StoreFile:
    ref = collection_ref(parts.database, caller.tenant_id, vector_store_id)
    return StoreFile.of(describe(file_id, dict(body.attributes or {}), parts, ref))


def _detach(vector_store_id: str, file_id: str, caller: Caller, parts: Parts) -> None:
    detach_file(file_id, parts, collection_ref(parts.database, caller.tenant_id, vector_store_id))


def _content(vector_store_id: str, file_id: str, caller: Caller, parts: Parts) -> ContentPage:
    ref = collection_ref(parts.database, caller.tenant_id, vector_store_id)
    return ContentPage(data=[TextOfFile(text) for text in texts_of(file_id, parts.database, ref)])
