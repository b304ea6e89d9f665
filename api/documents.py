"""/v1/documents: upload, list, look, change, delete."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import msgspec
from litestar import Response, Router, delete, get, patch, post, put
from litestar.datastructures import UploadFile
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, MultipartBody
from litestar.response import File
from msgspec import Meta

from api.auth import reading, writing
from api.collections import Limit
from api.errors import Problem, json_problems, problem_of, problems
from api.rooms import uploading
from ragkv.access.caller import Caller
from ragkv.db.tables import Status
from ragkv.db.tenants import scope_of
from ragkv.errors import RagKVError
from ragkv.library.changes import amend_document, replace_document, retry_document
from ragkv.library.documents import (
    DocumentView,
    accept_document,
    delete_document,
    document_view,
    stored_file,
)
from ragkv.library.listing import ChunkPage, DocumentPage, Wanted, list_chunks, list_documents
from ragkv.library.metadata import Metadata, read_filter, read_metadata
from ragkv.parts import Parts
from ragkv.scope import DEFAULT_COLLECTION
from ragkv.settings import Settings

FORM_BYTES = 64 * 1024
"""Room for what surrounds the file in a multipart body."""
BATCH_UPLOADS = 4
"""A request with many files may have as many bytes as this many of the largest file."""


@dataclass
class Upload:
    """One file in the form field `file`; `collection` by id or name; `metadata` a JSON object."""

    file: UploadFile
    collection: str = DEFAULT_COLLECTION
    metadata: str = "{}"


@dataclass
class Uploads:
    """Any number of form fields `files`, all for one collection and with the same metadata."""

    files: list[UploadFile]
    collection: str = DEFAULT_COLLECTION
    metadata: str = "{}"


@dataclass
class Replacement:
    """One file in the form field `file`."""

    file: UploadFile


class Uploaded(msgspec.Struct, frozen=True):
    """What became of one of many files: what a request of its own would have got."""

    name: str
    status: int
    document: DocumentView | None = None
    problem: Problem | None = None


class Amendment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays. `metadata` is merged into what there is (RFC 7396): null removes a key."""

    name: Annotated[str, Meta(min_length=1, max_length=500, examples=["report.pdf"])] | None = None
    metadata: Annotated[Metadata, Meta(examples=[{"year": 2024, "draft": None}])] | None = None


@post(
    "/",
    guards=[writing, uploading],
    status_code=HTTPStatus.ACCEPTED,
    summary="Upload a document",
    response_description="Accepted and queued.",
    responses=problems(
        NOT_FOUND="No such collection.",
        REQUEST_ENTITY_TOO_LARGE="More bytes than a file may have, or more bytes or documents than a tenant.",
        UNPROCESSABLE_ENTITY="The file is empty, or the metadata will not do.",
        INSUFFICIENT_STORAGE="The disk is nearly full.",
    )
    | {200: ResponseSpec(DocumentView, generate_examples=False, description="The document that has these bytes.")},
)
async def upload(
    data: MultipartBody[Upload], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> Response[DocumentView]:
    """Accept a file and queue it: 202. The same bytes again in the same collection: 200 and the same id.

    Metadata that comes with the same bytes replaces what the document has; without any it stays.
    """
    form = await asyncio.to_thread(_read_form, data.collection, data.metadata, caller, parts)
    status, view = await asyncio.to_thread(_accept, data.file, form, parts)
    return Response(view, status_code=status, headers={"Location": f"/v1/documents/{view.id}"})


@post(
    "/batch",
    guards=[writing, uploading],
    status_code=HTTPStatus.OK,
    summary="Upload many documents",
    responses=problems(
        NOT_FOUND="No such collection.",
        REQUEST_ENTITY_TOO_LARGE="More bytes than one request may have.",
        UNPROCESSABLE_ENTITY="The metadata will not do.",
    ),
)
async def upload_many(
    data: MultipartBody[Uploads], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> list[Uploaded]:
    """Accept many files, each by itself: one that is refused does not touch the others."""
    form = await asyncio.to_thread(_read_form, data.collection, data.metadata, caller, parts)
    return [await asyncio.to_thread(_try, file, form, parts) for file in data.files]


@get(
    "/",
    guards=[reading],
    summary="List documents",
    responses=problems(NOT_FOUND="No such collection.", UNPROCESSABLE_ENTITY="The cursor or the filter will not do."),
)
async def index(
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
    collection: FromQuery[str | None] = None,
    status: FromQuery[Status | None] = None,
    name: FromQuery[str | None] = None,
    metadata: FromQuery[str | None] = None,
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> DocumentPage:
    """The tenant's documents, newest first. `name`: a part of it. `metadata`: a filter, like {"year": [2023, 2024]}."""
    return await asyncio.to_thread(_list, caller, parts, (collection, status, name, metadata), limit, cursor)


@get(
    "/{document_id:str}", guards=[reading], summary="Show a document", responses=problems(NOT_FOUND="No such document.")
)
async def show(
    document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> DocumentView:
    """A document and how far its ingestion has come."""
    return await asyncio.to_thread(document_view, document_id, parts.database, caller.tenant_id)


@patch(
    "/{document_id:str}",
    guards=[writing],
    summary="Change name or metadata",
    responses=json_problems(NOT_FOUND="No such document.", UNPROCESSABLE_ENTITY="Too much metadata."),
)
async def amend(
    document_id: FromPath[str],
    data: JSONBody[Amendment],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> DocumentView:
    """Rename a document, merge into its metadata. Nothing is read again."""
    return await asyncio.to_thread(amend_document, document_id, parts, caller.tenant_id, data.name, data.metadata)


@put(
    "/{document_id:str}",
    guards=[writing, uploading],
    status_code=HTTPStatus.ACCEPTED,
    summary="Replace a document's file",
    responses=problems(
        NOT_FOUND="No such document.",
        CONFLICT="Another document of the collection has these bytes.",
        REQUEST_ENTITY_TOO_LARGE="More bytes than a file, or all files of a tenant, may have.",
        UNPROCESSABLE_ENTITY="The file is empty.",
        INSUFFICIENT_STORAGE="The disk is nearly full.",
    ),
)
async def replace(
    document_id: FromPath[str],
    data: MultipartBody[Replacement],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> DocumentView:
    """Give a document another file; id and metadata stay. It answers from the old one until the new one is searchable."""
    file = data.file
    return await asyncio.to_thread(replace_document, document_id, file.filename, file.file, parts, caller.tenant_id)


@delete(
    "/{document_id:str}",
    guards=[writing],
    summary="Delete a document",
    responses=problems(NOT_FOUND="No such document."),
)
async def remove(document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> None:
    """Remove a document with all that was made from it, whatever its state."""
    await asyncio.to_thread(delete_document, document_id, parts, caller.tenant_id)


@post(
    "/{document_id:str}/retry",
    guards=[writing],
    status_code=HTTPStatus.ACCEPTED,
    summary="Try again",
    responses=problems(NOT_FOUND="No such document.", CONFLICT="The document did not fail."),
)
async def retry(
    document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> DocumentView:
    """Queue a failed document again. 409 for one that did not fail."""
    return await asyncio.to_thread(retry_document, document_id, parts, caller.tenant_id)


@get(
    "/{document_id:str}/file",
    guards=[reading],
    summary="Download the original",
    responses=problems(NOT_FOUND="No such document, or its file is gone."),
)
async def download(document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> File:
    """The bytes that were uploaded, always as a download: a browser shows nothing of them."""
    path, name = await asyncio.to_thread(stored_file, document_id, parts, caller.tenant_id)
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    return File(path, filename=name, media_type="application/octet-stream", headers=headers)


@get(
    "/{document_id:str}/chunks",
    guards=[reading],
    summary="List a document's chunks",
    responses=problems(NOT_FOUND="No such document.", UNPROCESSABLE_ENTITY="The cursor is not one of ours."),
)
async def chunks(
    document_id: FromPath[str],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> ChunkPage:
    """Its chunks in order, each with its text, its place, and what is kept of its KV."""
    page = (parts.database, parts.kv_store, caller.tenant_id, document_id, limit, cursor)
    return await asyncio.to_thread(list_chunks, *page)


def documents_router(settings: Settings) -> Router:
    limit = settings.max_upload_bytes + FORM_BYTES
    upload_many.request_max_body_size = BATCH_UPLOADS * limit
    handlers = [upload, upload_many, index, show, amend, replace, remove, retry, download, chunks]
    return Router("/v1/documents", route_handlers=handlers, tags=["documents"], request_max_body_size=limit)


@dataclass(frozen=True)
class _Form:
    """What a form says beside its files."""

    caller: Caller
    collection: str
    metadata: Metadata


def _read_form(collection: str, metadata: str, caller: Caller, parts: Parts) -> _Form:
    scope_of(parts.database, caller.tenant_id, collection)
    return _Form(caller, collection, read_metadata(metadata))


def _accept(file: UploadFile, form: _Form, parts: Parts) -> tuple[HTTPStatus, DocumentView]:
    scope = scope_of(parts.database, form.caller.tenant_id, form.collection)
    accepted = accept_document(file.filename, file.file, parts, scope, form.metadata)
    view = document_view(accepted.document_id, parts.database, scope.tenant_id)
    return HTTPStatus.ACCEPTED if accepted.created else HTTPStatus.OK, view


def _try(file: UploadFile, form: _Form, parts: Parts) -> Uploaded:
    try:
        status, view = _accept(file, form, parts)
    except RagKVError as error:
        problem = problem_of(error)
        return Uploaded(file.filename, problem.status, problem=problem)
    return Uploaded(file.filename, status, document=view)


def _list(
    caller: Caller,
    parts: Parts,
    wanted: tuple[str | None, Status | None, str | None, str | None],
    limit: int,
    cursor: str | None,
) -> DocumentPage:
    collection, status, name, metadata = wanted
    scope = None if collection is None else scope_of(parts.database, caller.tenant_id, collection)
    having = None if metadata is None else read_filter(metadata)
    chosen = Wanted(caller.tenant_id, scope.collection_id if scope else None, status, name, metadata=having)
    return list_documents(parts.database, chosen, limit, cursor)
