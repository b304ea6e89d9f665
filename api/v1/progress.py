"""A progress stream from its first event to its last, as long as the caller is admitted."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from litestar.response import ServerSentEventMessage

from api.access.admission import Confirmation
from api.http.draining import Draining
from api.http.errors import problem_of
from api.http.sse import KEEP_ALIVE, KEEP_ALIVE_EVERY_S, Encoded, event_message
from api.v1.watching import Subscription, Update
from ragkv.errors import NotFound, RagKVError

BATCH_BYTES = 64 * 1024
"""Size of a message of many events: what slow clients have not read yet is kept once for all of them."""

Message = ServerSentEventMessage
Events = Callable[[list[Update], Subscription], tuple[Iterable[Message], Message | None]]
"""Gives the messages for updates, and the last event if nothing will follow."""


class Conditions:
    """Conditions for a stream to go on: the service is not shutting down, and the caller would still be admitted."""

    def __init__(self, confirmation: Confirmation, draining: Draining) -> None:
        self._confirmation = confirmation
        self._draining = draining

    @property
    def hold(self) -> bool:
        return not self._draining.started

    @property
    def due_in_s(self) -> float:
        return self._confirmation.due_in_s

    async def check(self) -> None:
        """Check the caller's rights again. Raises Unauthorised once the caller would be refused, Unavailable if that
        cannot be checked."""
        await self._confirmation.renew()


async def progress(
    opened: AbstractContextManager[Subscription], thing_id: str, events_of: Events, conditions: Conditions
) -> AsyncIterator[Message]:
    """The events of one stream. The last one gives the reason for its end, unless that is the shutdown."""
    sent_at = time.monotonic()
    with opened as subscription:
        while conditions.hold:
            messages, last = events_of(subscription.take(), subscription)
            for message in messages:
                sent_at = time.monotonic()
                yield message
            last = last or await _end(subscription, thing_id, conditions)
            if last is not None:
                yield last
                return
            if time.monotonic() - sent_at >= KEEP_ALIVE_EVERY_S:  # proxies close what is silent
                sent_at = time.monotonic()
                yield KEEP_ALIVE
            await subscription.wait(min(conditions.due_in_s, KEEP_ALIVE_EVERY_S))


def of_collection(*, until_finished: bool) -> Events:
    def events_of(updates: list[Update], subscription: Subscription) -> tuple[Iterable[Message], Message | None]:
        return _batches(updates), event_message("done", {}) if until_finished and subscription.is_idle else None

    return events_of


def of_document(updates: list[Update], subscription: Subscription) -> tuple[Iterable[Message], Message | None]:
    if updates and updates[-1].progress.is_finished:
        return (), event_message("done", updates[-1].progress)
    return _batches(updates), None


async def _end(subscription: Subscription, thing_id: str, conditions: Conditions) -> Message | None:
    """The last event, if the thing was deleted or cannot be read, or the caller would be refused."""
    try:
        await conditions.check()
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
