"""Progress of ingestion as server-sent events, as long as the caller is admitted. On shutdown they end at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery
from litestar.response import ServerSentEvent, ServerSentEventMessage

from api.access.admission import Admissions, Confirmation
from api.access.auth import reading
from api.access.concurrency import Places
from api.http.draining import Draining
from api.http.errors import problem_of, problems
from api.http.methods import get
from api.http.observe import hold
from api.http.sse import KEEP_ALIVE, KEEP_ALIVE_EVERY_S, Encoded, event_message
from api.v1.watching import Subscription, Update, Watchers
from ragkv.errors import NotFound, RagKVError
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import collection_ref
from ragkv.service.documents.documents import document_view
from ragkv.service.documents.watch import CollectionWatch, DocumentWatch, Watch
from ragkv.text import plural

KEYS_WORTH = 5
"""Limit of streams of a tenant, in streams of one key."""

Until = Literal["closed", "finished"]

BATCH_BYTES = 64 * 1024
"""Size of a message of many events: what slow clients have not read yet is kept once for all of them."""

Message = ServerSentEventMessage
Events = Callable[[list[Update], Subscription], tuple[Iterable[Message], Message | None]]
"""Gives the messages for updates, and the last event if nothing will follow."""


async def progress(
    opened: AbstractContextManager[Subscription],
    thing_id: str,
    events_of: Events,
    confirmation: Confirmation,
    draining: Draining,
) -> AsyncIterator[Message]:
    """The events of one stream. The last one gives the reason for its end, unless that is the shutdown."""
    sent_at = time.monotonic()
    with opened as subscription:
        while not draining.started:
            messages, last = events_of(subscription.take(), subscription)
            for message in messages:
                sent_at = time.monotonic()
                yield message
            last = last or await _end(subscription, thing_id, confirmation)
            if last is not None:
                yield last
                return
            if time.monotonic() - sent_at >= KEEP_ALIVE_EVERY_S:  # proxies close what is silent
                sent_at = time.monotonic()
                yield KEEP_ALIVE
            await subscription.wait(min(confirmation.due_in_s, KEEP_ALIVE_EVERY_S))


def of_collection(*, until_finished: bool) -> Events:
    def events_of(updates: list[Update], subscription: Subscription) -> tuple[Iterable[Message], Message | None]:
        return _batches(updates), event_message("done", {}) if until_finished and subscription.is_idle else None

    return events_of


def of_document(updates: list[Update], subscription: Subscription) -> tuple[Iterable[Message], Message | None]:
    if updates and updates[-1].progress.is_finished:
        return (), event_message("done", updates[-1].progress)
    return _batches(updates), None


async def _end(subscription: Subscription, thing_id: str, confirmation: Confirmation) -> Message | None:
    """The last event, if the thing was deleted or cannot be read, or the caller would be refused."""
    try:
        await confirmation.renew()
    except RagKVError as error:
        return event_message("error", problem_of(error))
    if isinstance(subscription.error, NotFound):
        return event_message("deleted", {"id": thing_id})
    return event_message("error", problem_of(subscription.error)) if subscription.error else None


def _batches(updates: list[Update]) -> Iterator[Message]:
    """The events, in messages of about BATCH_BYTES."""
    texts, size = list[bytes](), 0
    for update in updates:
        texts.append(update.text)
        size += len(update.text)
        if size >= BATCH_BYTES:
            yield Encoded(b"".join(texts))
            texts, size = [], 0
    if texts:
        yield Encoded(b"".join(texts))


class ProgressStreams:
    """Opens progress streams, a limited number for each key and tenant."""

    def __init__(self, admissions: Admissions, draining: Draining, limit: int) -> None:
        self._of_key = Places(limit, _refusal(limit, "one key"))
        self._of_tenant = Places(KEYS_WORTH * limit, _refusal(KEYS_WORTH * limit, "all keys of a tenant"))
        self._admissions = admissions
        self._draining = draining
        self._watchers = Watchers(draining)

    def place(self, request: Request[Any, Any, Any]) -> Confirmation:
        """Take a place for the length of the request. Raises Throttled if the caller has none left. The stream goes on
        while the caller is confirmed."""
        caller: Caller = request.user
        hold(request, self._of_key.taken(caller.identity or caller.tenant_id))
        hold(request, self._of_tenant.taken(caller.tenant_id))
        return self._admissions.confirmation(request)

    def open(
        self,
        caller: Caller,
        thing_id: str,
        watch_of: Callable[[], Watch],
        events_of: Events,
        confirmation: Confirmation,
    ) -> AsyncIterator[Message]:
        opened = self._watchers.subscribe((caller.tenant_id, thing_id), watch_of)
        return progress(opened, thing_id, events_of, confirmation, self._draining)


@get(
    "/v1/documents/{document_id:str}/events",
    "Stream a document's progress",
    problems(NOT_FOUND="No such document."),
    reading,
    tags=["documents"],
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
    confirmation = streams.place(request)
    await asyncio.to_thread(document_view, caller.tenant_id, document_id, database)
    watch_of = partial(DocumentWatch, database, document_id, caller.tenant_id)
    return ServerSentEvent(streams.open(caller, document_id, watch_of, of_document, confirmation))


@get(
    "/v1/collections/{collection:str}/events",
    "Stream a collection's progress",
    problems(NOT_FOUND="No such collection."),
    reading,
    tags=["collections"],
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
    confirmation = streams.place(request)
    ref = await asyncio.to_thread(collection_ref, caller.tenant_id, collection, database)
    watch_of = partial(CollectionWatch, database, ref.collection_id)
    events_of = of_collection(until_finished=until == "finished")
    return ServerSentEvent(streams.open(caller, ref.collection_id, watch_of, events_of, confirmation))


def _refusal(limit: int, whose: str) -> str:
    return f"at most {plural(limit, 'concurrent progress stream')} with {whose}: close one, or raise RAGKV_MAX_STREAMS"
