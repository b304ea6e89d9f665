"""/v1/kv, and /kv under a document or a collection: usage of KV, and pin, evict, rebuild, verify."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Router
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.response import ServerSentEvent, ServerSentEventMessage

from api.access.auditing import note_change
from api.access.auth import administering, reading, writing
from api.http.disconnect import stepwise
from api.http.errors import json_problems, problem_of, problems
from api.http.methods import delete, get, patch, post
from api.http.sse import event_message
from api.v1.lists import Limit
from ragkv.kv.layout import Layout
from ragkv.kv.remote import ObjectStore
from ragkv.kv.store import KVStore
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.queue import Queue
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.documents.changes import Queued
from ragkv.service.documents.documents import DocumentView, document_view
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.eviction import Freed, evict
from ragkv.service.kv_admin.rules import KVRulePatch, KVRuleView, change_rule, rule_view
from ragkv.service.kv_admin.usage import (
    HeldKV,
    KVOverview,
    held_kv,
    kv_of_some_collections,
    overview,
    pin,
    rebuild_document,
    rebuild_missing,
)
from ragkv.service.kv_admin.verify import Verified, verify
from ragkv.service.observe.worker_counters import WorkerCounters
from ragkv.service.parts import Parts
from ragkv.settings import Settings


class PinBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pins or unpins KV."""

    pinned: Annotated[bool, "Whether the KV is pinned: evicted only on request, never to free space."]


@get("/kv", "Get KV usage", problems(UNPROCESSABLE_ENTITY="Invalid cursor."), reading)
def show_all(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    kv_store: NamedDependency[KVStore],
    default_collection: NamedDependency[CollectionRef],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> KVOverview:
    """Get the size of the tenant's stored KV by tier and by collection. `limit` and `cursor` are of the collections,
    which are ordered by name."""
    collections = kv_of_some_collections(caller.tenant_id, limit, cursor, database)
    return overview(
        caller.tenant_id, database, settings, kv_store, default_collection, collections, of_all=caller.may("admin")
    )


@post("/kv/verify", "Verify all KV", problems(), administering, status_code=HTTPStatus.OK)
async def verify_all(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    kv_store: NamedDependency[KVStore],
    kv_remote: NamedDependency[ObjectStore | None],
    layout: NamedDependency[Layout],
) -> ServerSentEvent:
    """Verify the checksum of every KV file of the tenant. The response is a stream of server-sent events.

    `progress` events are followed by one `done` event with the result, or one `error` event. Damaged files are removed;
    their documents remain searchable, and their KV is recomputed when needed until it is rebuilt.
    """
    return ServerSentEvent(verification(KVOwner(caller.tenant_id), database, kv_store, kv_remote, layout))


@get("/", "Get a document's KV", problems(NOT_FOUND="No such document."), reading)
def show_document(owner: NamedDependency[KVOwner], database: NamedDependency[Database]) -> HeldKV:
    """Get the size and state of a document's stored KV."""
    return held_kv(owner, database)


@patch(
    "/",
    "Pin or unpin a document's KV",
    json_problems(NOT_FOUND="No such document.", CONFLICT="The tenant's limit for pinned KV would be exceeded."),
    writing,
)
def pin_document(
    owner: NamedDependency[KVOwner],
    data: JSONBody[PinBody],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
) -> HeldKV:
    """Pin or unpin the KV of a document. Pinned KV is evicted only on request, never to free space."""
    return pin(owner, database, settings, pinned=data.pinned)


@delete("/", "Evict a document's KV", problems(NOT_FOUND="No such document."), writing, status_code=HTTPStatus.OK)
def evict_document(
    owner: NamedDependency[KVOwner],
    request: Request[Any, Any, Any],
    database: NamedDependency[Database],
    kv_store: NamedDependency[KVStore],
    worker_counters: NamedDependency[WorkerCounters],
) -> Freed:
    """Evict the KV of a document, pinned or not, except for KV that other documents share.

    The document remains searchable; its KV is recomputed when a question needs it.
    """
    return evict(owner, database, kv_store, worker_counters, partial(note_change, request))


@post(
    "/rebuild",
    "Rebuild a document's KV",
    problems(NOT_FOUND="No such document.", CONFLICT="The document has failed: retry it instead."),
    writing,
    status_code=HTTPStatus.ACCEPTED,
)
def rebuild_one(
    document_id: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    queue: NamedDependency[Queue],
) -> DocumentView:
    """Queue a document so that its missing KV is computed and stored. Has no effect while the document is being
    ingested."""
    return rebuild_document(caller.tenant_id, document_id, database, queue)


@post("/verify", "Verify a document's KV", problems(NOT_FOUND="No such document."), writing, status_code=HTTPStatus.OK)
async def verify_document(
    owner: NamedDependency[KVOwner],
    database: NamedDependency[Database],
    kv_store: NamedDependency[KVStore],
    kv_remote: NamedDependency[ObjectStore | None],
    layout: NamedDependency[Layout],
) -> ServerSentEvent:
    """Verify the checksums of a document's KV files. Events and effects are those of `/v1/kv/verify`."""
    return ServerSentEvent(verification(owner, database, kv_store, kv_remote, layout))


show_collection = get(
    "/",
    "Get a collection's KV",
    problems(NOT_FOUND="No such collection."),
    reading,
    description="Get the size and state of the stored KV of a collection's documents.",
)(show_document.fn)


pin_collection = patch(
    "/",
    "Pin or unpin a collection's KV",
    json_problems(NOT_FOUND="No such collection.", CONFLICT="The tenant's limit for pinned KV would be exceeded."),
    administering,
    description="Pin or unpin the KV of all documents of a collection. Pinned KV is evicted only on request, never to free\n"
    "space.",
)(pin_document.fn)


evict_collection = delete(
    "/",
    "Evict a collection's KV",
    problems(NOT_FOUND="No such collection."),
    administering,
    status_code=HTTPStatus.OK,
    description="Evict the KV of a collection, pinned or not, except for KV that other collections share.\n\n"
    "Its documents remain searchable; their KV is recomputed when a question needs it.",
)(evict_document.fn)


@post(
    "/rebuild",
    "Rebuild a collection's KV",
    problems(NOT_FOUND="No such collection."),
    administering,
    status_code=HTTPStatus.ACCEPTED,
)
def rebuild_all(
    owner: NamedDependency[KVOwner],
    database: NamedDependency[Database],
    kv_store: NamedDependency[KVStore],
    queue: NamedDependency[Queue],
) -> Queued:
    """Queue every document of a collection whose KV was evicted or lost, so that it is computed and stored again."""
    return rebuild_missing(owner, database, kv_store, queue)


verify_collection = post(
    "/verify",
    "Verify a collection's KV",
    problems(NOT_FOUND="No such collection."),
    administering,
    status_code=HTTPStatus.OK,
    description="Verify the checksums of a collection's KV files. Events and effects are those of `/v1/kv/verify`.",
)(verify_document.fn)


@get("/rule", "Get a collection's rule for KV", problems(NOT_FOUND="No such collection."), reading)
def show_rule(
    owner: NamedDependency[KVOwner], database: NamedDependency[Database], settings: NamedDependency[Settings]
) -> KVRuleView:
    """Get when and in which format the KV of a collection is kept."""
    return rule_view(owner, database, settings)


@patch("/rule", "Update a collection's rule for KV", json_problems(NOT_FOUND="No such collection."), administering)
def amend_rule(
    owner: NamedDependency[KVOwner],
    data: JSONBody[KVRulePatch],
    request: Request[Any, Any, Any],
    parts: NamedDependency[Parts],
) -> KVRuleView:
    """Update when and in which format the KV of a collection is kept.

    KV in another format is converted in the background, and the old KV is used until then. With `nth_use`, the KV of a
    chunk is computed once `uses` answers have used it; with `never`, only when it is rebuilt on request. Stored KV is
    not removed by a new rule.
    """
    return change_rule(owner, data, parts, partial(note_change, request))


def owning_document(
    document_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> KVOwner:
    """The dependency `owner` under a document's path. Raises NotFound."""
    return KVOwner(caller.tenant_id, document_id=document_view(caller.tenant_id, document_id, database).id)


def owning_collection(
    collection: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> KVOwner:
    """The dependency `owner` under a collection's path. Raises NotFound."""
    return KVOwner(caller.tenant_id, collection_id=collection_ref(caller.tenant_id, collection, database).collection_id)


of_documents = Router(
    "/documents/{document_id:str}/kv",
    route_handlers=[show_document, pin_document, evict_document, rebuild_one, verify_document],
    dependencies={"owner": Provide(owning_document, sync_to_thread=True)},
)
of_collections = Router(
    "/collections/{collection:str}/kv",
    route_handlers=[
        show_collection,
        pin_collection,
        evict_collection,
        rebuild_all,
        verify_collection,
        show_rule,
        amend_rule,
    ],
    dependencies={"owner": Provide(owning_collection, sync_to_thread=True)},
)
kv_router = Router("/v1", route_handlers=[show_all, verify_all, of_documents, of_collections], tags=["kv"])


async def verification(
    owner: KVOwner, database: Database, kv_store: "KVStore", kv_remote: "ObjectStore | None", layout: "Layout"
) -> AsyncIterator[ServerSentEventMessage]:
    """Events of a verification, which stops when the client disconnects."""
    latest: Verified | None = None
    try:
        async with aclosing(stepwise(verify(owner, database, kv_store, kv_remote, layout))) as steps:
            async for verified in steps:
                if latest is not None:
                    yield event_message("progress", latest)
                latest = verified
        yield event_message("done", latest)
    except Exception as error:  # the status line is out: the client learns it from the stream
        yield event_message("error", problem_of(error))
