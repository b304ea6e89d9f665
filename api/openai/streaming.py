"""Answers as streams of server-sent events, in OpenAI's manner."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from litestar import Request
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.response import ServerSentEvent, ServerSentEventMessage

from api.http.disconnect import unless_disconnected
from api.v1.ask import EVENT_STREAM, Events
from ragkv.answer.question import Answer, Delta
from ragkv.catalog.attachments import Entry

Messages = Iterable[ServerSentEventMessage]
Sources = dict[str, Entry]
FindSources = Callable[[Answer], Sources]
"""`sources_of`, for the caller's tenant. It blocks."""


class Teller(Protocol):
    """Says what happens to an answer, each thing as the events that a client awaits."""

    def begin(self) -> Messages: ...
    def tell(self, text: str) -> Messages: ...
    def end(self, answer: Answer, sources: Sources) -> Messages:
        """The answer is whole."""
        ...

    def fail(self, error: Exception) -> Messages: ...


@dataclass
class StreamingOperation(Operation):
    """A way whose answer may also come as a stream: the document says so."""

    def __post_init__(self) -> None:
        answer = (self.responses or {})["200"]
        assert isinstance(answer, OpenAPIResponse)
        text = Schema(type=OpenAPIType.STRING, description="Server-sent events, with `stream`.")
        answer.content = {**(answer.content or {}), EVENT_STREAM: OpenAPIMediaType(schema=text)}


async def whole(events: Events) -> Answer:
    """The end of an answer."""
    async with aclosing(events) as closing:  # type: ignore[type-var]
        async for said in closing:
            if isinstance(said, Answer):
                return said
    raise AssertionError("a stream ends with Done")


async def streamed(
    events: Events, request: Request[Any, Any, Any], teller: Teller, find_sources: FindSources
) -> ServerSentEvent:
    """What goes wrong before the first event is an ordinary error response; after it, `teller.fail`."""
    trimmed_events = trimmed(events)
    first = await unless_disconnected(request, anext(trimmed_events))
    return ServerSentEvent(_told(first, trimmed_events, teller, find_sources))


async def trimmed(events: Events) -> AsyncGenerator[Delta | Answer, None]:
    """The same events, their deltas together exactly the answer: no white space before it, none after it."""
    begun, held = False, ""
    async with aclosing(events) as closing:  # type: ignore[type-var]
        async for said in closing:
            if isinstance(said, Answer):
                yield said
                return
            text = held + said.text if begun else said.text.lstrip()
            begun = begun or bool(text)
            kept = text.rstrip()
            held = text[len(kept) :]
            if kept:
                yield Delta(kept)


async def _told(
    first: Delta | Answer, events: AsyncGenerator[Delta | Answer, None], teller: Teller, find_sources: FindSources
) -> AsyncIterator[ServerSentEventMessage]:
    async with aclosing(events):
        try:
            for message in (*teller.begin(), *await _of(first, teller, find_sources)):
                yield message
            async for said in events:
                for message in await _of(said, teller, find_sources):
                    yield message
        except Exception as error:  # the status line is out: the client learns it from the stream
            for message in teller.fail(error):
                yield message


async def _of(said: Delta | Answer, teller: Teller, find_sources: FindSources) -> Messages:
    if isinstance(said, Delta):
        return teller.tell(said.text)
    return teller.end(said, await asyncio.to_thread(find_sources, said))
