"""/v1/collections: named sets of documents. Paths and bodies refer to a collection by its id or its name."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Router
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from api.access.auth import administering, reading, writing
from api.http.disconnect import stepwise
from api.http.errors import json_problems, problems
from api.http.methods import delete, get, patch, post
from api.http.observe import note_made
from api.v1.lists import Limit
from ragkv.service.answer_cache.ring import AnswerRing
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.queue import Queue
from ragkv.service.base.tenants import collection_ref
from ragkv.service.collections.collections import (
    AnswerCachePatch,
    CollectionPage,
    CollectionView,
    amend_collection,
    collection_with_counts,
    delete_in_batches,
    list_collections,
    make_collection,
)
from ragkv.service.documents.changes import Queued, retry_failed
from ragkv.service.documents.removal import Removal


class CollectionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new collection."""

    name: Annotated[
        str,
        "Name of the collection: 1 to 200 printable characters, unique within the tenant.",
        Meta(examples=["papers"]),
    ]


class CollectionPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a collection. Omitted fields are unchanged."""

    name: (
        Annotated[str, "New name: 1 to 200 printable characters, unique within the tenant.", Meta(examples=["papers"])]
        | None
    ) = None
    answer_cache: (
        Annotated[
            AnswerCachePatch,
            "Changes to the answer cache.",
            Meta(examples=[{"enabled": True, "threshold": 0.95, "ttl_s": 86400}]),
        ]
        | None
    ) = None


@post(
    "/",
    "Create a collection",
    json_problems(CONFLICT="Another collection has this name.", UNPROCESSABLE_ENTITY="Invalid collection name."),
    writing,
)
def create(
    data: JSONBody[CollectionBody],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
) -> CollectionView:
    """Create an empty collection. Names are unique within a tenant: a name in use is refused with 409."""
    collection = make_collection(caller.tenant_id, data.name, database)
    note_made(request, collection.id)
    return collection


@get("/", "List collections", problems(UNPROCESSABLE_ENTITY="Invalid cursor."), reading)
def index(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> CollectionPage:
    """List the tenant's collections, ordered by name, each with the number of its documents, chunks and tokens."""
    return list_collections(caller.tenant_id, limit, cursor, database)


@get("/{collection:str}", "Get a collection", problems(NOT_FOUND="No such collection."), reading)
def show(
    collection: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    answer_ring: NamedDependency[AnswerRing],
) -> CollectionView:
    """Get a collection by id or name, including the hits and misses of its answer cache."""
    return collection_with_counts(caller.tenant_id, collection, database, answer_ring)


@patch(
    "/{collection:str}",
    "Update a collection",
    json_problems(
        NOT_FOUND="No such collection.",
        CONFLICT="Another collection has this name, or the collection is the default one, which cannot be renamed.",
        UNPROCESSABLE_ENTITY="Invalid collection name.",
    ),
    writing,
)
def amend(
    collection: FromPath[str],
    data: JSONBody[CollectionPatch],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
) -> CollectionView:
    """Rename a collection or configure its answer cache. The id does not change.

    The answer cache is off by default. When it is on, a question with the same meaning as an earlier one is answered
    from the cache until the collection changes. Questions within a conversation, and those that refer to the present
    day, are never answered from the cache.
    """
    return amend_collection(caller.tenant_id, collection, database, data.name, data.answer_cache)


@delete(
    "/{collection:str}",
    "Delete a collection",
    problems(NOT_FOUND="No such collection.", CONFLICT="The default collection cannot be deleted."),
    administering,
)
async def remove(collection: FromPath[str], caller: NamedDependency[Caller], removal: NamedDependency[Removal]) -> None:
    """Delete a collection with all its documents, their chunks, vectors and KV."""
    await delete_collection(caller.tenant_id, collection, removal)


@post(
    "/{collection:str}/retry",
    "Retry all failed documents",
    problems(NOT_FOUND="No such collection."),
    writing,
    status_code=HTTPStatus.ACCEPTED,
)
def retry_all(
    collection: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    queue: NamedDependency[Queue],
) -> Queued:
    """Queue every failed document of a collection again, with a full set of attempts."""
    ref = collection_ref(caller.tenant_id, collection, database)
    return retry_failed(ref, database, queue)


async def delete_collection(tenant_id: str, collection: str, removal: Removal) -> None:
    """Run `delete_in_batches`, each batch in a thread. After each it pauses for as long as the batch took: other work
    gets its turn at the threads and the database."""
    async for took_s in stepwise(delete_in_batches(tenant_id, collection, removal)):
        await asyncio.sleep(took_s)


collections_router = Router(
    "/v1/collections", route_handlers=[create, index, show, amend, remove, retry_all], tags=["collections"]
)
