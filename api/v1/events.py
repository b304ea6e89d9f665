"""Progress of ingestion as server-sent events. On shutdown these streams end at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from litestar import Request, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery
from litestar.response import ServerSentEvent

from api.access.admission import Admissions
from api.access.auth import reading
from api.http.draining import Draining
from api.http.errors import problems
from api.http.observe import hold
from api.v1.progress import Conditions, Events, Message, of_collection, of_document, progress
from api.v1.watching import Watchers
from ragkv.service.access.places import Places
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import collection_ref
from ragkv.service.documents.documents import document_view
from ragkv.service.documents.watch import CollectionWatch, DocumentWatch, Watch
from ragkv.text import plural

KEYS_WORTH = 5
"""Limit of streams of a tenant, in streams of one key."""

Until = Literal["closed", "finished"]


class ProgressStreams:
    """Opens progress streams, a limited number for each key and tenant."""

    def __init__(self, admissions: Admissions, draining: Draining, limit: int) -> None:
        self._of_key = Places(limit, _refusal(limit, "one key"))
        self._of_tenant = Places(KEYS_WORTH * limit, _refusal(KEYS_WORTH * limit, "all keys of a tenant"))
        self._admissions = admissions
        self._draining = draining
        self._watchers = Watchers(draining)

    def place(self, request: Request[Any, Any, Any]) -> Conditions:
        """Take a place for the length of the request. Raises Throttled if the caller has none left."""
        caller: Caller = request.user
        hold(request, self._of_key.taken(caller.identity or caller.tenant_id))
        hold(request, self._of_tenant.taken(caller.tenant_id))
        return Conditions(self._admissions.confirmation(request), self._draining)

    def open(
        self, caller: Caller, thing_id: str, watch_of: Callable[[], Watch], events_of: Events, conditions: Conditions
    ) -> AsyncIterator[Message]:
        opened = self._watchers.subscribe((caller.tenant_id, thing_id), watch_of)
        return progress(opened, thing_id, events_of, conditions)


@get(
    "/v1/documents/{document_id:str}/events",
    guards=[reading],
    tags=["documents"],
    summary="Stream a document's progress",
    responses=problems(NOT_FOUND="No such document."),
)
async def document_events(
    document_id: FromPath[str],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    streams: NamedDependency[ProgressStreams],
) -> ServerSentEvent:
    """Stream the progress of a document's ingestion as server-sent events: a `progress` event after each change.

    The last event is `done` when the document is ready or has failed, `deleted` when it was deleted, or `error`, for
    example when the API key was revoked.
    """
    conditions = streams.place(request)
    await asyncio.to_thread(document_view, caller.tenant_id, document_id, database)

    def watch() -> Watch:
        return DocumentWatch(database, document_id, caller.tenant_id)

    return ServerSentEvent(streams.open(caller, document_id, watch, of_document, conditions))


@get(
    "/v1/collections/{collection:str}/events",
    guards=[reading],
    tags=["collections"],
    summary="Stream a collection's progress",
    responses=problems(NOT_FOUND="No such collection."),
)
async def collection_events(
    collection: FromPath[str],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    streams: NamedDependency[ProgressStreams],
    until: FromQuery[Until] = "closed",
) -> ServerSentEvent:
    """Stream the progress of all documents of a collection, starting with those that are not finished, or that finished
    in the last few seconds.

    A `progress` event follows each change of a document. The stream is open-ended, or ends with a `done` event once
    every document is finished if `until=finished` is set. The last event is `deleted` when the collection was deleted,
    or `error`, for example when the API key was revoked.
    """
    conditions = streams.place(request)
    ref = await asyncio.to_thread(collection_ref, caller.tenant_id, collection, database)

    def watch() -> Watch:
        return CollectionWatch(database, ref.collection_id)

    events_of = of_collection(until_finished=until == "finished")
    return ServerSentEvent(streams.open(caller, ref.collection_id, watch, events_of, conditions))


def _refusal(limit: int, whose: str) -> str:
    return f"at most {plural(limit, 'concurrent progress stream')} with {whose}: close one, or raise RAGKV_MAX_STREAMS"
