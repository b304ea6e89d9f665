"""/v1/documents: upload, look, delete."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

from litestar import Response, Router, delete, get, post
from litestar.datastructures import UploadFile
from litestar.di import NamedDependency
from litestar.params import FromPath, MultipartBody

from api.auth import reading, writing
from ragkv.caller import Caller
from ragkv.db.tenants import scope_of
from ragkv.documents import DocumentView, accept_document, delete_document, document_view
from ragkv.parts import Parts
from ragkv.settings import Settings

FORM_BYTES = 64 * 1024
"""Room for what surrounds the file in a multipart body."""


@dataclass
class Upload:
    """One file, in the form field `file`."""

    file: UploadFile


@post("/", guards=[writing])
async def upload(
    data: MultipartBody[Upload], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> Response[DocumentView]:
    """Accept a file and queue it: 202. The same bytes again: 200 and the same id."""
    view, created = await asyncio.to_thread(_accept, data.file, caller, parts)
    status = HTTPStatus.ACCEPTED if created else HTTPStatus.OK
    return Response(view, status_code=status, headers={"Location": f"/v1/documents/{view.id}"})


@get("/{document_id:str}", guards=[reading])
async def show(
    document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> DocumentView:
    """A document and how far its ingestion has come."""
    return await asyncio.to_thread(document_view, document_id, parts.database, caller.tenant_id)


@delete("/{document_id:str}", guards=[writing])
async def remove(document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> None:
    """Remove a document with all that was made from it, whatever its state."""
    await asyncio.to_thread(delete_document, document_id, parts, caller.tenant_id)


def documents_router(settings: Settings) -> Router:
    handlers = [upload, show, remove]
    limit = settings.max_upload_bytes + FORM_BYTES
    return Router("/v1/documents", route_handlers=handlers, tags=["documents"], request_max_body_size=limit)


def _accept(file: UploadFile, caller: Caller, parts: Parts) -> tuple[DocumentView, bool]:
    scope = scope_of(parts.database, caller.tenant_id)
    accepted = accept_document(file.filename, file.file, parts, scope)
    return document_view(accepted.document_id, parts.database, caller.tenant_id), accepted.created
