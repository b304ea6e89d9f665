"""/v1/vector_stores: collections, under OpenAI's name for them."""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Router
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from api.access.auth import administering, reading, writing
from api.http.methods import delete, get, post
from api.http.observe import note_made
from api.openai.errors import errors
from api.openai.fields import PAGED, AutoChunking, Id, NotSupported
from api.openai.file_batches import file_batches_router
from api.openai.store_files import store_files_router
from api.openai.store_search import search
from api.openai.store_views import VectorStore, VectorStoreDeleted, VectorStorePage, generated_name
from api.v1.collections import delete_collection
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.page import PageRequest
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.collections.collections import amend_collection
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.removal import Removal
from ragkv.service.files.attachments import make_collection_of
from ragkv.service.files.stores import list_stores, store_of

NOT_FOUND = "No such vector store."
TAKEN = "Another vector store has this name."
DEFAULT_STAYS = "The vector store is the default collection, which cannot be renamed or deleted."

StoreName = Annotated[str, Meta(min_length=1, max_length=200, examples=["papers"])]
NoTags = Annotated[dict[str, str], Meta(max_length=0, description="Only an empty object is supported.")]


class NewVectorStore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new vector store."""

    name: Annotated[
        StoreName | None, "Name of the vector store, unique within the tenant. A name is generated if it is omitted."
    ] = None
    file_ids: Annotated[list[Id], "Ids of files to attach.", Meta(max_length=500)] | None = None
    chunking_strategy: Annotated[AutoChunking | None, "Chunking strategy; only `auto` is supported."] = None
    metadata: NoTags | None = None
    description: NotSupported = None
    expires_after: NotSupported = None


class VectorStoreChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a vector store. Omitted fields are unchanged."""

    name: Annotated[StoreName | None, "New name, unique within the tenant."] = None
    metadata: NoTags | None = None
    expires_after: NotSupported = None


@post(
    "/",
    "Create a vector store",
    errors(
        NOT_FOUND="No such file. No vector store is created.",
        CONFLICT=TAKEN,
        REQUEST_ENTITY_TOO_LARGE="The tenant has no room for more documents. No vector store is created.",
    ),
    writing,
    status_code=HTTPStatus.OK,
)
def create(
    data: JSONBody[NewVectorStore],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    intake: NamedDependency[Intake],
) -> VectorStore:
    """Create a vector store, which is a collection, and attach files to it."""
    made_id = make_collection_of(caller.tenant_id, data.name or generated_name(), data.file_ids or [], intake)
    note_made(request, made_id)
    return VectorStore.of(store_of(caller.tenant_id, made_id, database))


@get("/", "List vector stores", errors(NOT_FOUND=NOT_FOUND), reading, dependencies=PAGED)
def index(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    page: NamedDependency[PageRequest],
) -> VectorStorePage:
    """List the tenant's vector stores with the progress of their files."""
    return VectorStorePage.of(list_stores(caller.tenant_id, page, database), VectorStore.of)


@get("/{vector_store_id:str}", "Get a vector store", errors(NOT_FOUND=NOT_FOUND), reading)
def show(
    vector_store_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> VectorStore:
    """Get a vector store by id or name."""
    return VectorStore.of(store_of(caller.tenant_id, vector_store_id, database))


@post(
    "/{vector_store_id:str}",
    "Update a vector store",
    errors(NOT_FOUND=NOT_FOUND, CONFLICT=f"{TAKEN} Or: {DEFAULT_STAYS}"),
    writing,
    status_code=HTTPStatus.OK,
)
def change(
    vector_store_id: FromPath[str],
    data: JSONBody[VectorStoreChange],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
) -> VectorStore:
    """Rename a vector store. Its id does not change."""
    view = amend_collection(caller.tenant_id, vector_store_id, database, data.name)
    return VectorStore.of(store_of(caller.tenant_id, view.id, database))


@delete(
    "/{vector_store_id:str}",
    "Delete a vector store",
    errors(NOT_FOUND=NOT_FOUND, CONFLICT=DEFAULT_STAYS),
    administering,
    status_code=HTTPStatus.OK,
)
async def remove(
    vector_store_id: FromPath[str],
    caller: NamedDependency[Caller],
    removal: NamedDependency[Removal],
) -> VectorStoreDeleted:
    """Delete a vector store with the chunks, vectors and KV of its files. Files in `/v1/files` are kept."""
    await delete_collection(caller.tenant_id, vector_store_id, removal)
    return VectorStoreDeleted(id=vector_store_id)


def store_in_path(
    vector_store_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> CollectionRef:
    """The dependency `store`: the collection that the path names. Raises NotFound."""
    return collection_ref(caller.tenant_id, vector_store_id, database)


vector_stores_router = Router(
    "/v1/vector_stores",
    route_handlers=[create, index, show, change, remove, search, store_files_router, file_batches_router],
    dependencies={"store": Provide(store_in_path, sync_to_thread=True)},
    tags=["openai: vector stores"],
)
