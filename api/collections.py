"""/v1/collections: named sets of documents. A collection is named by its id or its name everywhere."""

import asyncio
from http import HTTPStatus
from typing import Annotated

import msgspec
from litestar import Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from api.auth import administering, reading, writing
from api.deletion import delete_collection
from api.errors import json_problems, problems
from ragkv.access.caller import Caller
from ragkv.db.tenants import scope_of
from ragkv.library.changes import Queued, retry_failed
from ragkv.library.collection import (
    AnswerCachePatch,
    CollectionPage,
    CollectionView,
    amend_collection,
    collection_with_counts,
    list_collections,
    make_collection,
)
from ragkv.paging import MAX_PAGE
from ragkv.parts import Parts

Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="How many on a page.")]


class CollectionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collection's name: 1 to 200 printable characters, no other of the tenant has it."""

    name: Annotated[str, Meta(examples=["papers"])]


class CollectionPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays."""

    name: Annotated[str, Meta(examples=["papers"])] | None = None
    answer_cache: (
        Annotated[AnswerCachePatch, Meta(examples=[{"enabled": True, "threshold": 0.95, "ttl_s": 86400}])] | None
    ) = None


@post(
    "/",
    guards=[writing],
    summary="Make a collection",
    responses=json_problems(CONFLICT="The name is taken.", UNPROCESSABLE_ENTITY="The name will not do."),
)
async def create(
    data: JSONBody[CollectionBody], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> CollectionView:
    """Make an empty collection. 409 if the name is taken."""
    return await asyncio.to_thread(make_collection, data.name, parts.database, caller.tenant_id)


@get(
    "/",
    guards=[reading],
    summary="List collections",
    responses=problems(UNPROCESSABLE_ENTITY="The cursor is not one of ours."),
)
async def index(
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> CollectionPage:
    """The tenant's collections by name, with what is in them."""
    return await asyncio.to_thread(list_collections, parts.database, caller.tenant_id, limit, cursor)


@get(
    "/{collection:str}",
    guards=[reading],
    summary="Show a collection",
    responses=problems(NOT_FOUND="No such collection."),
)
async def show(
    collection: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> CollectionView:
    """A collection, by id or name, and how often its answer cache knew the answer."""
    return await asyncio.to_thread(collection_with_counts, collection, parts, caller.tenant_id)


@patch(
    "/{collection:str}",
    guards=[writing],
    summary="Change a collection",
    responses=json_problems(
        NOT_FOUND="No such collection.",
        CONFLICT="The name is taken, or the default collection was to be renamed.",
        UNPROCESSABLE_ENTITY="The name will not do.",
    ),
)
async def amend(
    collection: FromPath[str],
    data: JSONBody[CollectionPatch],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> CollectionView:
    """Give it another name (its id stays), or say whether its answers serve again.

    `answer_cache`: off at first. On, a question that means the same as an earlier one gets that one's answer: for questions
    outside a conversation that name no moment like today, until the collection changes.
    """
    change = (data.name, data.answer_cache)
    return await asyncio.to_thread(amend_collection, collection, parts.database, caller.tenant_id, *change)


@delete(
    "/{collection:str}",
    guards=[administering],
    summary="Delete a collection",
    responses=problems(NOT_FOUND="No such collection.", CONFLICT="The default collection stays."),
)
async def remove(collection: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> None:
    """Remove it with all its documents and all that was made from them."""
    await delete_collection(collection, parts, caller.tenant_id)


@post(
    "/{collection:str}/retry",
    guards=[writing],
    status_code=HTTPStatus.ACCEPTED,
    summary="Try all failed documents again",
    responses=problems(NOT_FOUND="No such collection."),
)
async def retry_all(
    collection: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> Queued:
    """Queue every document of the collection that failed, with fresh attempts. Says how many there were."""
    scope = await asyncio.to_thread(scope_of, parts.database, caller.tenant_id, collection)
    return await asyncio.to_thread(retry_failed, scope, parts)


def collections_router() -> Router:
    return Router(
        "/v1/collections", route_handlers=[create, index, show, amend, remove, retry_all], tags=["collections"]
    )
