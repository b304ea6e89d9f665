"""Subscriptions to progress: one watcher per document or collection polls the database for all its subscribers."""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from api.http.draining import Draining
from api.http.sse import event_message
from ragkv.errors import Unavailable
from ragkv.service.documents.watch import DocumentProgress, Watch
from ragkv.threads import Threads

log = logging.getLogger(__name__)

POLL_EVERY_S = 0.5
THREADS = 2
"""For all watchers of a process."""


class Update(NamedTuple):
    """A document's progress, and its encoded event."""

    progress: DocumentProgress
    text: bytes


class Subscription:
    """Updates that one client has not received yet: of each document the last."""

    def __init__(self, watcher: "_Watcher") -> None:
        self.started = False
        self._watcher = watcher
        self._pending: dict[str, Update] = {}
        self._arrived = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether everything has been received and every document is finished."""
        return self.started and self._watcher.is_idle and not self._pending

    @property
    def error(self) -> Exception | None:
        """The reason why no update will follow: the thing was deleted, or cannot be read."""
        return self._watcher.error

    def take(self) -> list[Update]:
        pending, self._pending = self._pending, {}
        return list(pending.values())

    def publish(self, updates: dict[str, Update]) -> None:
        self.started = True
        self._pending |= updates
        self._arrived.set()

    async def wait(self, seconds: float) -> None:
        """Wait for an update, at most `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)
            self._arrived.clear()


class Watchers:
    """The watchers of a process, by what they watch. In the event loop only."""

    def __init__(self, draining: Draining) -> None:
        self._draining = draining
        self._threads = Threads("watch", THREADS)
        self._running: dict[Hashable, _Watcher] = {}

    @contextmanager
    def subscribe(self, thing: Hashable, watch_of: Callable[[], Watch]) -> Iterator[Subscription]:
        """Subscribe to a thing. `watch_of` makes its watch if it has no watcher yet."""
        watcher = self._running.get(thing)
        if watcher is None:
            watcher = self._running[thing] = _Watcher(watch_of(), self._threads, self._draining)
        subscription = Subscription(watcher)
        watcher.subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            watcher.subscriptions.discard(subscription)
            if not watcher.subscriptions:
                watcher.task.cancel()
                del self._running[thing]


class _Watcher:
    """Polls as long as it has subscriptions. A later one starts with the next poll, with everything known."""

    def __init__(self, watch: Watch, threads: Threads, draining: Draining) -> None:
        self.subscriptions: set[Subscription] = set()
        self.is_idle = False
        self.error: Exception | None = None
        self._watch = watch
        self._known: dict[str, Update] = {}
        self._threads = threads
        self.task = asyncio.create_task(self._run(draining))

    async def _run(self, draining: Draining) -> None:
        while self.error is None and not draining.started:
            waiting = {subscription for subscription in self.subscriptions if not subscription.started}
            was_idle, updates = self.is_idle, dict[str, Update]()
            try:
                updates, self._known, self.is_idle = await self._threads.run(self._look)
            except Unavailable as error:
                log.warning("progress cannot be read at the moment: %s", error)
            except Exception as error:  # its subscriptions pass it on
                self.error = error
            for subscription in self.subscriptions & waiting:
                subscription.publish(self._known | updates)
            if updates or self.is_idle != was_idle or self.error:
                for subscription in self.subscriptions - waiting:
                    if subscription.started:  # one that came during the poll starts with the next
                        subscription.publish(updates)
            await draining.wait_started(POLL_EVERY_S)
        for subscription in self.subscriptions:
            subscription.publish({})

    def _look(self) -> tuple[dict[str, Update], dict[str, Update], bool]:
        """The new updates, all that is known, and whether every document is finished."""
        updates = {
            progress.id: Update(progress, event_message("progress", progress).encode())
            for progress in self._watch.look()
        }
        all_known = self._known | updates
        return updates, {progress.id: all_known[progress.id] for progress in self._watch.state()}, self._watch.is_idle
