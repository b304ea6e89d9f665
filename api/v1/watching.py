"""Streams of progress: one watcher a thing looks at the database, whatever number of streams tell of it."""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from api.http.draining import Draining
from api.http.sse import event_message
from ragkv.catalog.watch import DocumentProgress, Watch
from ragkv.errors import Unavailable
from ragkv.threads import Threads

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
THREADS = 2
"""For all looks of a process."""


class News(NamedTuple):
    """A document's progress, and the event that tells of it."""

    progress: DocumentProgress
    text: bytes


class Stream:
    """What one client has not been told yet: of several changes of one document the last."""

    def __init__(self, watcher: "_Watcher") -> None:
        self.started = False
        self._watcher = watcher
        self._pending: dict[str, News] = {}
        self._news = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether everything has been told and nothing is left to be read."""
        return self.started and self._watcher.is_idle and not self._pending

    @property
    def error(self) -> Exception | None:
        """Why nothing more comes: the thing is gone, or cannot be looked at."""
        return self._watcher.error

    def take(self) -> list[News]:
        pending, self._pending = self._pending, {}
        return list(pending.values())

    def tell(self, news: dict[str, News]) -> None:
        self.started = True
        self._pending |= news
        self._news.set()

    async def wait(self, seconds: float) -> None:
        """Until there is something to tell, or for so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
            self._news.clear()


class Watchers:
    """The watchers of a process, by what they look at. In the event loop only."""

    def __init__(self, draining: Draining) -> None:
        self._draining = draining
        self._threads = Threads("watch", THREADS)
        self._running: dict[Hashable, _Watcher] = {}

    @contextmanager
    def stream(self, thing: Hashable, watch_of: Callable[[], Watch]) -> Iterator[Stream]:
        """A stream of a thing. `watch_of` makes the watch if nobody watches the thing yet."""
        watcher = self._running.get(thing)
        if watcher is None:
            watcher = self._running[thing] = _Watcher(watch_of(), self._threads, self._draining)
        stream = Stream(watcher)
        watcher.streams.add(stream)
        try:
            yield stream
        finally:
            watcher.streams.discard(stream)
            if not watcher.streams:
                watcher.task.cancel()
                del self._running[thing]


class _Watcher:
    """Looks as long as somebody listens. A stream that comes later begins with the next look, with all that is known."""

    def __init__(self, watch: Watch, threads: Threads, draining: Draining) -> None:
        self.streams: set[Stream] = set()
        self.is_idle = False
        self.error: Exception | None = None
        self._watch = watch
        self._known: dict[str, News] = {}
        self._threads = threads
        self.task = asyncio.create_task(self._run(draining))

    async def _run(self, draining: Draining) -> None:
        while self.error is None and not draining.started:
            waiting = {stream for stream in self.streams if not stream.started}
            was_idle, news = self.is_idle, await self._news()
            for stream in self.streams & waiting:
                stream.tell(self._known | news)
            if news or self.is_idle != was_idle or self.error:
                for stream in self.streams - waiting:
                    stream.tell(news)
            await draining.wait_started(LOOK_EVERY_S)
        for stream in self.streams:
            stream.tell({})

    async def _news(self) -> dict[str, News]:
        try:
            news, self._known, self.is_idle = await self._threads.run(self._look)
        except Unavailable as error:
            log.warning("progress is not seen for a moment: %s", error)
        except Exception as error:  # its streams say what went wrong
            self.error = error
        else:
            return news
        return {}

    def _look(self) -> tuple[dict[str, News], dict[str, News], bool]:
        """What is new, what is known now, and whether nothing is left to be read."""
        news = {one.id: News(one, event_message("progress", one).encode()) for one in self._watch.look()}
        all_known = self._known | news
        return news, {one.id: all_known[one.id] for one in self._watch.state()}, self._watch.is_idle
