"""/v1/vector_stores/ID/file_batches: many files attached together."""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from api.access.auth import reading, writing
from api.access.concurrency import uploading_large
from api.http.methods import get, post
from api.http.observe import note_made
from api.openai.errors import BadParam, errors
from api.openai.fields import PAGED, Attributes, AutoChunking, Id
from api.openai.store_files import NewStoreFile, StatusFilter
from api.openai.store_views import FileBatch, StoreFile, StoreFilePage, polled, statuses_of
from ragkv.service.base.database import Database
from ragkv.service.base.page import PageRequest
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.removal import Removal
from ragkv.service.files.attachments import Attach
from ragkv.service.files.file_batches import attach_batch, batch_of, cancel_batch, list_batch

MAX_FILES = 500
BODY_BYTES = 8 * 1024 * 1024
"""Files with all the attributes that they may have take 5 MB, in ASCII."""
NOT_FOUND = "No such vector store, or no such batch of files in it."


class NewFileBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files to attach to a vector store: either `file_ids` or `files`."""

    file_ids: (
        Annotated[list[Id], "Ids of the files, which all get the same attributes.", Meta(max_length=MAX_FILES)] | None
    ) = None
    files: Annotated[list[NewStoreFile], "Files with attributes of their own.", Meta(max_length=MAX_FILES)] | None = (
        None
    )
    attributes: Annotated[Attributes | None, "Attributes of all files in `file_ids`."] = None
    chunking_strategy: Annotated[AutoChunking | None, "Chunking strategy; only `auto` is supported."] = None

    def to_attach(self) -> list[Attach]:
        """The files to attach, each with its attributes. Raises BadParam for neither or both lists, and for attributes
        that would be ignored."""
        if bool(self.files) == bool(self.file_ids):
            raise BadParam("file_ids", "set either `file_ids` or `files`")
        if not self.files:
            attributes = None if self.attributes is None else dict(self.attributes)
            return [Attach(file_id, attributes) for file_id in self.file_ids or ()]
        if self.attributes:
            raise BadParam("attributes", "with `files`, set the attributes of each file")
        return [file.to_attach() for file in self.files]


@post(
    "/",
    "Attach several files",
    errors(
        NOT_FOUND="No such vector store, or no such file. No file is attached.",
        REQUEST_ENTITY_TOO_LARGE=(
            "The body is too large, or the tenant has no room for more documents. No file is attached."
        ),
    ),
    writing,
    uploading_large,
    status_code=HTTPStatus.OK,
    request_max_body_size=BODY_BYTES,
)
def create(
    store: NamedDependency[CollectionRef],
    data: JSONBody[NewFileBatch],
    request: Request[Any, Any, Any],
    intake: NamedDependency[Intake],
) -> FileBatch:
    """Attach several files to a vector store and queue them for ingestion: either all of them or none."""
    batch = FileBatch.of(attach_batch(store, data.to_attach(), intake))
    note_made(request, batch.id)
    return batch


@get("/{batch_id:str}", "Get a file batch", errors(NOT_FOUND=NOT_FOUND), reading)
def show(
    store: NamedDependency[CollectionRef],
    batch_id: FromPath[str],
    database: NamedDependency[Database],
) -> Response[FileBatch]:
    """Get a file batch with the progress of its files."""
    return polled(FileBatch.of(batch_of(store, batch_id, database)))


@post("/{batch_id:str}/cancel", "Cancel a file batch", errors(NOT_FOUND=NOT_FOUND), writing, status_code=HTTPStatus.OK)
def cancel(
    store: NamedDependency[CollectionRef],
    batch_id: FromPath[str],
    removal: NamedDependency[Removal],
) -> FileBatch:
    """Cancel a file batch: detach those of its files that are not ingested yet. The files themselves are kept."""
    return FileBatch.of(cancel_batch(store, batch_id, removal))


@get("/{batch_id:str}/files", "List a file batch's files", errors(NOT_FOUND=NOT_FOUND), reading, dependencies=PAGED)
def files(
    store: NamedDependency[CollectionRef],
    batch_id: FromPath[str],
    database: NamedDependency[Database],
    page: NamedDependency[PageRequest],
    filter: StatusFilter = None,  # noqa: A002 - the wire's name
) -> StoreFilePage:
    """List the files of a batch that are still attached to the vector store."""
    return StoreFilePage.of(list_batch(store, batch_id, page, statuses_of(filter), database), StoreFile.of)


file_batches_router = Router("/{vector_store_id:str}/file_batches", route_handlers=[create, show, cancel, files])
