"""Progress of ingestion as server-sent events. When the service stops, these streams end at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Literal

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery
from litestar.response import ServerSentEvent, ServerSentEventMessage

from api.auth import reading
from api.ending import Ending
from api.errors import problems
from api.sse import KEEP_ALIVE, event
from ragkv.access.caller import Caller
from ragkv.db.tenants import scope_of
from ragkv.errors import NotFound
from ragkv.library.documents import document_view
from ragkv.library.watch import CollectionWatch, DocumentProgress
from ragkv.parts import Parts

LOOK_EVERY_S = 0.5
SPEAK_EVERY_S = 15.0

Until = Literal["closed", "finished"]


@get(
    "/v1/documents/{document_id:str}/events",
    guards=[reading],
    tags=["documents"],
    summary="Watch a document",
    responses=problems(NOT_FOUND="No such document."),
)
async def document_events(
    document_id: FromPath[str],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
    ending: NamedDependency[Ending],
) -> ServerSentEvent:
    """Events `progress` whenever something changed: stage (parse, embed, prefill) with tokens done of total.

    The last event is `done`, when the document is ready or failed, or `deleted`.
    """
    await asyncio.to_thread(document_view, document_id, parts.database, caller.tenant_id)
    return ServerSentEvent(_of_document(document_id, parts, caller.tenant_id, ending))


@get(
    "/v1/collections/{collection:str}/events",
    guards=[reading],
    tags=["collections"],
    summary="Watch a collection",
    responses=problems(NOT_FOUND="No such collection."),
)
async def collection_events(
    collection: FromPath[str],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
    ending: NamedDependency[Ending],
    until: FromQuery[Until] = "closed",
) -> ServerSentEvent:
    """Events `progress` of all documents of a collection, first of those that are not finished.

    The stream goes on until it is closed, or with `until=finished` until no document is left to be read: event `done`.
    """
    scope = await asyncio.to_thread(scope_of, parts.database, caller.tenant_id, collection)
    return ServerSentEvent(_of_collection(CollectionWatch(parts.database, scope.collection_id), until, ending))


async def _of_document(
    document_id: str, parts: Parts, tenant_id: str, ending: Ending
) -> AsyncIterator[ServerSentEventMessage]:
    seen, silence = None, _Silence()
    while True:
        try:
            view = await asyncio.to_thread(document_view, document_id, parts.database, tenant_id)
        except NotFound:
            yield event("deleted", {"id": document_id})
            return
        progress = DocumentProgress.of(view)
        if progress.is_finished:
            yield event("done", progress)
            return
        if progress != seen:
            seen = progress
            silence.end()
            yield event("progress", progress)
        elif silence.is_long():
            yield KEEP_ALIVE
        if await ending.begins_within(LOOK_EVERY_S):
            return


async def _of_collection(watch: CollectionWatch, until: Until, ending: Ending) -> AsyncIterator[ServerSentEventMessage]:
    silence = _Silence()
    while True:
        for progress in await asyncio.to_thread(watch.look):
            silence.end()
            yield event("progress", progress)
        if until == "finished" and watch.is_idle:
            yield event("done", {})
            return
        if silence.is_long():
            yield KEEP_ALIVE
        if await ending.begins_within(LOOK_EVERY_S):
            return


class _Silence:
    """How long nothing was said on a stream: proxies close one that is silent."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        self._since = time.monotonic()

    def is_long(self) -> bool:
        """Whether something must be said now; then a new silence begins."""
        is_long = time.monotonic() - self._since > SPEAK_EVERY_S
        if is_long:
            self.end()
        return is_long
