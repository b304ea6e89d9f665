"""Answers as streams of server-sent events, in OpenAI's format."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from litestar import Request, Response
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.response import ServerSentEvent, ServerSentEventMessage

from api.http.disconnect import unless_disconnected
from api.http.draining import STOPPING
from api.http.sse import EVENT_STREAM, KEEP_ALIVE, KEEP_ALIVE_EVERY_S, with_silences
from api.v1.ask import Events, KeptAlive
from ragkv.answer.question import Answer, Delta
from ragkv.errors import Unavailable
from ragkv.service.files.attachments import StoreEntry

Messages = Iterable[ServerSentEventMessage]
Sources = dict[str, StoreEntry]
FindSources = Callable[[Answer], Sources]
"""`sources_of`, for the caller's tenant. It blocks."""


class EventEncoder(Protocol):
    """Encodes an answer as server-sent events, in the format that one kind of client expects."""

    def start(self) -> Messages: ...
    def delta(self, text: str) -> Messages: ...
    def finish(self, answer: Answer, sources: Sources) -> Messages: ...
    def error(self, error: Exception) -> Messages: ...


@dataclass
class StreamingOperation(Operation):
    """An endpoint whose response may also be a stream, as the document states."""

    def __post_init__(self) -> None:
        answer = (self.responses or {})["200"]
        assert isinstance(answer, OpenAPIResponse)
        text = Schema(type=OpenAPIType.STRING, description="Server-sent events, with `stream`.")
        answer.content = {**(answer.content or {}), EVENT_STREAM: OpenAPIMediaType(schema=text)}


async def streamed(
    events: Events, request: Request[Any, Any, Any], encoder: EventEncoder, find_sources: FindSources
) -> Response[Any]:
    """A stream of the encoded events. A failure before the first, or before the first silence, is an ordinary error
    response; later, `encoder.error`."""
    kept_alive = with_silences(events, KEEP_ALIVE_EVERY_S)
    opening = await unless_disconnected(request, anext(kept_alive))
    return ServerSentEvent(_encoded(opening, kept_alive, encoder, find_sources))


async def _encoded(
    opening: Delta | Answer | None,
    events: KeptAlive,
    encoder: EventEncoder,
    find_sources: FindSources,
) -> AsyncIterator[ServerSentEventMessage]:
    async with aclosing(events):
        try:
            for message in encoder.start():
                yield message
            for message in await _messages(opening, encoder, find_sources):
                yield message
            async for event in events:
                for message in await _messages(event, encoder, find_sources):
                    yield message
        except asyncio.CancelledError:  # by the server as it stops, unless the client is gone
            for message in encoder.error(Unavailable(STOPPING)):
                yield message
            raise
        except Exception as error:  # the status line is out: the client learns it from the stream
            for message in encoder.error(error):
                yield message


async def _messages(event: Delta | Answer | None, encoder: EventEncoder, find_sources: FindSources) -> Messages:
    if event is None:
        return (KEEP_ALIVE,)
    if isinstance(event, Delta):
        return encoder.delta(event.text)
    return encoder.finish(event, await asyncio.to_thread(find_sources, event))
