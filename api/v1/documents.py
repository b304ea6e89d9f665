"""/v1/documents: upload, list, get, update, replace, retry and delete documents."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router
from litestar.datastructures import UploadFile
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, MultipartBody, QueryParameter
from litestar.response import File
from msgspec import Meta

from api.access.auth import reading, writing
from api.access.concurrency import uploading
from api.http.bodies import OF_UPLOADS
from api.http.errors import Problem, form_problems, json_problems, problem_of, problems
from api.http.files import attachment
from api.http.methods import delete, get, patch, post, put
from api.http.observe import note_made
from api.v1.lists import Limit
from ragkv.errors import RagKVError
from ragkv.kv.store import KVStore
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.queue import Queue
from ragkv.service.base.status import Status
from ragkv.service.base.tenants import DEFAULT_COLLECTION, CollectionRef, collection_ref
from ragkv.service.documents.changes import amend_document, replace_document, retry_document
from ragkv.service.documents.documents import (
    DocumentView,
    accept_document,
    delete_document,
    document_file,
    document_view,
)
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.listing import ChunkPage, DocumentFilter, DocumentPage, list_chunks, list_documents
from ragkv.service.documents.mail_attachments import DocumentDetail, document_detail
from ragkv.service.documents.metadata import Metadata, read_filter, read_metadata
from ragkv.service.documents.removal import Removal
from ragkv.settings import Settings
from ragkv.text import MAX_FILE_NAME_CHARS

FORM_BYTES = 64 * 1024
"""Room in a multipart body for everything but the file."""
BATCH_UPLOADS = 4
"""Size limit of a request with many files, in files of the largest size."""

NamePart = Annotated[str | None, QueryParameter(max_length=MAX_FILE_NAME_CHARS)]


class Upload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file to upload, with its collection and metadata."""

    file: Annotated[UploadFile, "File to upload."]
    collection: Annotated[str, "Collection id or name."] = DEFAULT_COLLECTION
    metadata: Annotated[str, "Metadata of the document, a JSON object as text."] = "{}"


class Uploads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files to upload to one collection, all with the same metadata."""

    files: Annotated[list[UploadFile], "Files to upload, one form field each."]
    collection: Annotated[str, "Collection id or name."] = DEFAULT_COLLECTION
    metadata: Annotated[str, "Metadata of the document, a JSON object as text."] = "{}"


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that replaces the document's present one."""

    file: Annotated[UploadFile, "New file of the document."]


class Uploaded(msgspec.Struct, frozen=True):
    """The result for one file of a batch: the same status and body that a single upload would have returned."""

    name: Annotated[str, "File name."]
    status: Annotated[int, "Status code that a single upload would have returned."]
    document: Annotated[DocumentView | None, "The document; null if the file was refused."] = None
    problem: Annotated[Problem | None, "The problem; null if the file was accepted."] = None


class Amendment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a document. Omitted fields are unchanged."""

    name: (
        Annotated[
            str,
            "New name of the document.",
            Meta(min_length=1, max_length=MAX_FILE_NAME_CHARS, examples=["report.pdf"]),
        ]
        | None
    ) = None
    metadata: (
        Annotated[
            Metadata,
            "Changes to the metadata, applied as a JSON merge patch (RFC 7396): null removes a key. Documents that "
            "came as attachments of this one alone follow.",
            Meta(examples=[{"year": 2024, "draft": None}]),
        ]
        | None
    ) = None


@post(
    "/",
    "Upload a document",
    form_problems(
        NOT_FOUND="No such collection.",
        REQUEST_ENTITY_TOO_LARGE="The file is too large, or the tenant has no room for more bytes or documents.",
        UNPROCESSABLE_ENTITY="The file is empty, or the metadata is invalid.",
        INSUFFICIENT_STORAGE="The disk is almost full.",
    )
    | {
        200: ResponseSpec(
            DocumentView,
            generate_examples=False,
            description="The collection already has a document with the same bytes.",
        )
    },
    writing,
    uploading,
    status_code=HTTPStatus.ACCEPTED,
    response_description="Accepted and queued for ingestion.",
)
def upload(
    data: MultipartBody[Upload],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    intake: NamedDependency[Intake],
) -> Response[DocumentView]:
    """Upload a file and queue it for ingestion. Returns 202, or 200 if the collection already has the same bytes.

    In the second case the existing document is returned. Metadata in the request replaces its metadata; without any,
    its metadata is unchanged.
    """
    ref = collection_ref(caller.tenant_id, data.collection, database)
    status, view = _accept(ref, data.file, read_metadata(data.metadata), database, intake)
    return Response(view, status_code=status, headers={"Location": f"/v1/documents/{view.id}"})


@post(
    "/batch",
    "Upload several documents",
    form_problems(
        NOT_FOUND="No such collection.",
        REQUEST_ENTITY_TOO_LARGE="The request is too large.",
        UNPROCESSABLE_ENTITY="The metadata is invalid.",
        INSUFFICIENT_STORAGE="The disk is almost full.",
    ),
    writing,
    uploading,
    status_code=HTTPStatus.OK,
)
async def upload_many(
    data: MultipartBody[Uploads],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    intake: NamedDependency[Intake],
) -> list[Uploaded]:
    """Upload several files in one request. Each is accepted or refused on its own; see `status` of each result."""
    ref = await asyncio.to_thread(collection_ref, caller.tenant_id, data.collection, database)
    metadata = await asyncio.to_thread(read_metadata, data.metadata)
    uploaded = []
    for file in data.files:
        try:
            status, view = await asyncio.to_thread(_accept, ref, file, metadata, database, intake)
        except RagKVError as error:
            problem = problem_of(error)
            uploaded.append(Uploaded(file.filename, problem.status, problem=problem))
        else:
            uploaded.append(Uploaded(file.filename, status, document=view))
    for result in uploaded:
        if result.document is not None:
            note_made(request, result.document.id)
    return uploaded


@get(
    "/",
    "List documents",
    problems(NOT_FOUND="No such collection.", UNPROCESSABLE_ENTITY="Invalid cursor or metadata filter."),
    reading,
)
def index(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    collection: FromQuery[str | None] = None,
    status: FromQuery[Status | None] = None,
    name: NamePart = None,
    metadata: FromQuery[str | None] = None,
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> DocumentPage:
    """List the tenant's documents, newest first, with optional filters."""
    collection_id = None if collection is None else collection_ref(caller.tenant_id, collection, database).collection_id
    having = None if metadata is None else read_filter(metadata)
    criteria = DocumentFilter(caller.tenant_id, collection_id, status, name, metadata=having)
    return list_documents(criteria, limit, cursor, database)


@get("/{document_id:str}", "Get a document", problems(NOT_FOUND="No such document."), reading)
def show(
    document_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> DocumentDetail:
    """Get a document with its metadata, the progress of its ingestion, its attachments, and the mails that it is
    attached to.

    The files attached to a mail are documents of the same collection.
    """
    return document_detail(caller.tenant_id, document_id, database)


@patch(
    "/{document_id:str}",
    "Update a document",
    json_problems(NOT_FOUND="No such document.", UNPROCESSABLE_ENTITY="The metadata is too large."),
    writing,
)
def amend(
    document_id: FromPath[str],
    data: JSONBody[Amendment],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
) -> DocumentView:
    """Rename a document or merge changes into its metadata. The document is not ingested again."""
    return amend_document(caller.tenant_id, document_id, database, data.name, data.metadata)


@put(
    "/{document_id:str}",
    "Replace a document's file",
    form_problems(
        NOT_FOUND="No such document.",
        CONFLICT="Another document of the collection has the same bytes.",
        REQUEST_ENTITY_TOO_LARGE="The file is too large, or the tenant has no room for more bytes.",
        UNPROCESSABLE_ENTITY="The file is empty.",
        INSUFFICIENT_STORAGE="The disk is almost full.",
    ),
    writing,
    uploading,
    status_code=HTTPStatus.ACCEPTED,
)
def replace(
    document_id: FromPath[str],
    data: MultipartBody[Replacement],
    caller: NamedDependency[Caller],
    intake: NamedDependency[Intake],
    removal: NamedDependency[Removal],
) -> DocumentView:
    """Replace the file of a document. Its id and metadata are kept.

    Questions are answered from the old file until the new one is searchable, also if it cannot be read. The document,
    its passages and its citations are `outdated` as long, with the reason.
    """
    return replace_document(caller.tenant_id, document_id, data.file.filename, data.file.file, intake, removal)


@delete("/{document_id:str}", "Delete a document", problems(NOT_FOUND="No such document."), writing)
def remove(
    document_id: FromPath[str],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    removal: NamedDependency[Removal],
) -> None:
    """Delete a document with its chunks, vectors and KV, in any state.

    The attachments of a mail are deleted with it, except those that are also attached to other mails or were uploaded
    themselves.
    """
    deleted = delete_document(caller.tenant_id, document_id, removal)
    if len(deleted) > 1:
        for deleted_id in deleted:
            note_made(request, deleted_id)


@post(
    "/{document_id:str}/retry",
    "Retry a failed document",
    problems(NOT_FOUND="No such document.", CONFLICT="The document has not failed."),
    writing,
    status_code=HTTPStatus.ACCEPTED,
)
def retry(
    document_id: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    queue: NamedDependency[Queue],
) -> DocumentView:
    """Queue a failed document again, with a full set of attempts."""
    return retry_document(caller.tenant_id, document_id, database, queue)


@get(
    "/{document_id:str}/file",
    "Download a document's file",
    problems(NOT_FOUND="No such document, or its file is missing."),
    reading,
)
def download(
    document_id: FromPath[str],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    file_store: NamedDependency[FileStore],
) -> File:
    """Download the original file, byte for byte. It is sent as an attachment, so browsers do not display it.

    If the document's text is `outdated`, it is the earlier file that the text is from.
    """
    path, name = document_file(caller.tenant_id, document_id, database, file_store)
    return attachment(request, file_store.open(caller.tenant_id, path.name), name)


@get(
    "/{document_id:str}/chunks",
    "List a document's chunks",
    problems(NOT_FOUND="No such document.", UNPROCESSABLE_ENTITY="Invalid cursor."),
    reading,
)
def chunks(
    document_id: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    kv_store: NamedDependency[KVStore],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> ChunkPage:
    """List the chunks of a document in order, each with its text, position and the state of its KV."""
    return list_chunks(caller.tenant_id, document_id, limit, cursor, database, kv_store)


def documents_router(settings: Settings) -> Router:
    limit = settings.max_upload_bytes + FORM_BYTES
    upload_many.request_max_body_size = BATCH_UPLOADS * limit
    handlers = [upload, upload_many, index, show, amend, replace, remove, retry, download, chunks]
    return Router(
        "/v1/documents", route_handlers=handlers, tags=["documents"], request_max_body_size=limit, opt=OF_UPLOADS
    )


def _accept(
    ref: CollectionRef, file: UploadFile, metadata: Metadata, database: Database, intake: Intake
) -> tuple[HTTPStatus, DocumentView]:
    accepted = accept_document(ref, file.filename, file.file, intake, metadata)
    view = document_view(ref.tenant_id, accepted.document_id, database)
    return HTTPStatus.ACCEPTED if accepted.created else HTTPStatus.OK, view
