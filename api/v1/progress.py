"""A stream of progress from its first event to its last: told while the caller may know of it."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from litestar.response import ServerSentEventMessage

from api.access.admission import Confirmation
from api.http.draining import Draining
from api.http.errors import problem_of
from api.http.sse import KEEP_ALIVE, Encoded, event_message
from api.v1.watching import News, Stream
from ragkv.errors import NotFound, RagKVError

SPEAK_EVERY_S = 15.0
PIECE_BYTES = 64 * 1024
"""How much is handed over at once: what slow clients have not read yet is kept once for all of them."""

Message = ServerSentEventMessage
Tell = Callable[[list[News], Stream], tuple[Iterable[Message], Message | None]]
"""What is said of news, and the last event if there is nothing to come."""


class Conditions:
    """What a stream goes on under: the service runs on, and the caller would still be admitted."""

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
        """Raises Unauthorised once the caller would be refused, Unavailable if that cannot be found out."""
        await self._confirmation.renew()


async def progress(
    opened: AbstractContextManager[Stream], thing_id: str, tell: Tell, conditions: Conditions
) -> AsyncIterator[Message]:
    """The events of one stream. The last one says why it ends, unless the service does."""
    spoken_at = time.monotonic()
    with opened as stream:
        while conditions.hold:
            messages, last = tell(stream.take(), stream)
            for message in messages:
                spoken_at = time.monotonic()
                yield message
            last = last or await _end(stream, thing_id, conditions)
            if last is not None:
                yield last
                return
            if time.monotonic() - spoken_at >= SPEAK_EVERY_S:  # proxies close what is silent
                spoken_at = time.monotonic()
                yield KEEP_ALIVE
            await stream.wait(min(conditions.due_in_s, SPEAK_EVERY_S))


def of_collection(*, until_finished: bool) -> Tell:
    def tell(news: list[News], stream: Stream) -> tuple[Iterable[Message], Message | None]:
        return _pieces(news), event_message("done", {}) if until_finished and stream.is_idle else None

    return tell


def of_document(news: list[News], stream: Stream) -> tuple[Iterable[Message], Message | None]:
    if news and news[-1].progress.is_finished:
        return (), event_message("done", news[-1].progress)
    return _pieces(news), None


async def _end(stream: Stream, thing_id: str, conditions: Conditions) -> Message | None:
    """The last event, if the thing is gone or the caller may no longer know of it."""
    try:
        await conditions.check()
    except RagKVError as error:
        return event_message("error", problem_of(error))
    if isinstance(stream.error, NotFound):
        return event_message("deleted", {"id": thing_id})
    return event_message("error", problem_of(stream.error)) if stream.error else None


def _pieces(news: list[News]) -> Iterator[Message]:
    """The events, as many in one message as make a piece."""
    texts, size = list[bytes](), 0
    for one in news:
        texts.append(one.text)
        size += len(one.text)
        if size >= PIECE_BYTES:
            yield Encoded(b"".join(texts))
            texts, size = [], 0
    if texts:
        yield Encoded(b"".join(texts))
