"""/v1/kv, and /kv under a document or a collection: what is kept of KV, and evict, pin, rebuild, verify."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from http import HTTPStatus

import msgspec
from litestar import Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from litestar.response import ServerSentEvent, ServerSentEventMessage

from api.auth import administering, reading, writing
from api.disconnect import stepwise
from api.errors import json_problems, problem_of, problems
from api.sse import event
from ragkv.access.caller import Caller
from ragkv.library.changes import Queued
from ragkv.library.documents import DocumentView
from ragkv.parts import Parts
from ragkv.scope import Holder
from ragkv.upkeep.admin import (
    HeldKV,
    KVOverview,
    held_kv,
    holder_of_collection,
    holder_of_document,
    overview,
    pin,
    rebuild_document,
    rebuild_evicted,
)
from ragkv.upkeep.eviction import Freed, evict
from ragkv.upkeep.verify import Verified, verify

DOCUMENT = "/documents/{document_id:str}/kv"
COLLECTION = "/collections/{collection:str}/kv"


class PinBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pinned KV is never evicted to make room, only by hand."""

    pinned: bool


@get("/kv", guards=[reading], summary="Show all KV", responses=problems())
async def show_all(caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> KVOverview:
    """The tenant's KV by tier and by collection."""
    return await asyncio.to_thread(overview, parts, caller.tenant_id)


@post("/kv/verify", guards=[administering], status_code=HTTPStatus.OK, summary="Verify all KV", responses=problems())
async def verify_all(caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> ServerSentEvent:
    """Hold every KV file against its checksum: events `progress`, then `done` with what was found, or `error`.

    Damaged files are removed. Their documents answer from recomputed KV until they are rebuilt.
    """
    return ServerSentEvent(verification(Holder(caller.tenant_id), parts))


@get(DOCUMENT, guards=[reading], summary="Show a document's KV", responses=problems(NOT_FOUND="No such document."))
async def show_document(
    document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> HeldKV:
    """What is kept of a document's KV."""
    return await asyncio.to_thread(lambda: held_kv(holder_of_document(document_id, parts, caller.tenant_id), parts))


@patch(
    DOCUMENT,
    guards=[writing],
    summary="Pin a document's KV",
    responses=json_problems(NOT_FOUND="No such document.", CONFLICT="More KV than the tenant may pin."),
)
async def pin_document(
    document_id: FromPath[str],
    data: JSONBody[PinBody],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> HeldKV:
    """Keep a document's KV from being evicted to make room, or no longer."""
    holder = await asyncio.to_thread(holder_of_document, document_id, parts, caller.tenant_id)
    return await asyncio.to_thread(pin, holder, parts, pinned=data.pinned)


@delete(
    DOCUMENT,
    guards=[writing],
    status_code=HTTPStatus.OK,
    summary="Evict a document's KV",
    responses=problems(NOT_FOUND="No such document."),
)
async def evict_document(
    document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> Freed:
    """Remove the KV that no other document uses, pinned or not. The document stays searchable, answered by recomputing."""
    return await asyncio.to_thread(lambda: evict(holder_of_document(document_id, parts, caller.tenant_id), parts))


@post(
    f"{DOCUMENT}/rebuild",
    guards=[writing],
    status_code=HTTPStatus.ACCEPTED,
    summary="Rebuild a document's KV",
    responses=problems(NOT_FOUND="No such document.", CONFLICT="The document failed."),
)
async def rebuild_one(
    document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> DocumentView:
    """Queue a document so that its missing KV is made. One that is being read is left to it. 409 for one that failed."""
    return await asyncio.to_thread(rebuild_document, document_id, parts, caller.tenant_id)


@post(
    f"{DOCUMENT}/verify",
    guards=[writing],
    status_code=HTTPStatus.OK,
    summary="Verify a document's KV",
    responses=problems(NOT_FOUND="No such document."),
)
async def verify_document(
    document_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> ServerSentEvent:
    """Like `/v1/kv/verify`, for one document."""
    holder = await asyncio.to_thread(holder_of_document, document_id, parts, caller.tenant_id)
    return ServerSentEvent(verification(holder, parts))


@get(
    COLLECTION, guards=[reading], summary="Show a collection's KV", responses=problems(NOT_FOUND="No such collection.")
)
async def show_collection(
    collection: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> HeldKV:
    """What is kept of the KV of a collection's documents."""
    return await asyncio.to_thread(lambda: held_kv(holder_of_collection(collection, parts, caller.tenant_id), parts))


@patch(
    COLLECTION,
    guards=[administering],
    summary="Pin a collection's KV",
    responses=json_problems(NOT_FOUND="No such collection.", CONFLICT="More KV than the tenant may pin."),
)
async def pin_collection(
    collection: FromPath[str],
    data: JSONBody[PinBody],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> HeldKV:
    """Keep the KV of all documents of a collection from being evicted to make room, or no longer."""
    holder = await asyncio.to_thread(holder_of_collection, collection, parts, caller.tenant_id)
    return await asyncio.to_thread(pin, holder, parts, pinned=data.pinned)


@delete(
    COLLECTION,
    guards=[administering],
    status_code=HTTPStatus.OK,
    summary="Evict a collection's KV",
    responses=problems(NOT_FOUND="No such collection."),
)
async def evict_collection(
    collection: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> Freed:
    """Remove the KV that no other collection uses, pinned or not. Its documents stay searchable."""
    return await asyncio.to_thread(lambda: evict(holder_of_collection(collection, parts, caller.tenant_id), parts))


@post(
    f"{COLLECTION}/rebuild",
    guards=[administering],
    status_code=HTTPStatus.ACCEPTED,
    summary="Rebuild a collection's KV",
    responses=problems(NOT_FOUND="No such collection."),
)
async def rebuild_all(
    collection: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> Queued:
    """Queue every document of a collection whose KV was evicted."""
    holder = await asyncio.to_thread(holder_of_collection, collection, parts, caller.tenant_id)
    return await asyncio.to_thread(rebuild_evicted, holder, parts)


@post(
    f"{COLLECTION}/verify",
    guards=[administering],
    status_code=HTTPStatus.OK,
    summary="Verify a collection's KV",
    responses=problems(NOT_FOUND="No such collection."),
)
async def verify_collection(
    collection: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> ServerSentEvent:
    """Like `/v1/kv/verify`, for one collection."""
    holder = await asyncio.to_thread(holder_of_collection, collection, parts, caller.tenant_id)
    return ServerSentEvent(verification(holder, parts))


def kv_router() -> Router:
    whole = [show_all, verify_all]
    of_documents = [show_document, pin_document, evict_document, rebuild_one, verify_document]
    of_collections = [show_collection, pin_collection, evict_collection, rebuild_all, verify_collection]
    return Router("/v1", route_handlers=[*whole, *of_documents, *of_collections], tags=["kv"])


async def verification(holder: Holder, parts: Parts) -> AsyncIterator[ServerSentEventMessage]:
    """Events of one verification, which ends when nobody listens any longer."""
    said: Verified | None = None
    try:
        async with aclosing(stepwise(verify(holder, parts))) as steps:
            async for following in steps:
                if said is not None:
                    yield event("progress", said)
                said = following
        yield event("done", said)
    except Exception as error:  # the status line is out: the client learns it from the stream
        yield event("error", problem_of(error))
