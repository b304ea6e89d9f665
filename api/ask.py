"""/v1/ask: a question in, an answer out, whole or as it comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from litestar import MediaType, Request, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import Meta

from api.auth import reading
from api.disconnect import unless_disconnected
from api.errors import problem_of
from ragkv.answer.ask import Ask, Citation, Delta, Done, Timings, Usage
from ragkv.caller import Caller
from ragkv.chunk import Passage
from ragkv.db.tenants import scope_of
from ragkv.parts import Parts
from ragkv.scope import Scope
from ragkv.settings import Mode, Policy

EVENT_STREAM = "text/event-stream"
BODY_BYTES = 1024 * 1024

Events = AsyncIterator[Delta | Done]


class AskBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question. What is left out follows the settings."""

    question: str
    stream: bool = False
    mode: Mode = "stitched"
    policy: Policy | None = None
    recompute_ratio: Annotated[float, Meta(ge=0, le=1)] | None = None
    block_size: Annotated[int, Meta(ge=2, le=64)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=200)] | None = None
    hops: Annotated[int, Meta(ge=1, le=8)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None

    def to_ask(self, scope: Scope) -> Ask:
        options = {name: getattr(self, name) for name in self.__struct_fields__ if name != "stream"}
        return Ask(tenant_id=scope.tenant_id, collection_id=scope.collection_id, **options)


class PassageView(msgspec.Struct, frozen=True):
    """A passage the answer was made from."""

    chunk_id: str
    document_id: str
    title: str
    text: str
    page: int | None
    start: int
    end: int
    score: float
    hop: int

    @classmethod
    def of(cls, passage: Passage) -> "PassageView":
        chunk = passage.chunk
        return cls(
            chunk.id, chunk.document_id, chunk.title, chunk.text, chunk.page, chunk.start, chunk.end, passage.score,
            passage.hop,
        )  # fmt: skip


class AnswerView(msgspec.Struct, frozen=True):
    """The answer, what it rests on, and what it took: milliseconds and tokens."""

    answer: str
    finish_reason: str
    citations: tuple[Citation, ...]
    passages: list[PassageView]
    timings: Timings
    usage: Usage

    @classmethod
    def of(cls, done: Done) -> "AnswerView":
        passages = [PassageView.of(passage) for passage in done.passages]
        return cls(done.answer, done.finish_reason, done.citations, passages, done.timings, done.usage)


@post("/v1/ask", status_code=200, tags=["questions"], guards=[reading], request_max_body_size=BODY_BYTES)
async def ask(
    data: JSONBody[AskBody],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> Response[AnswerView] | ServerSentEvent:
    """Answer a question. With `stream` or `Accept: text/event-stream`: events `delta`, then `done` or `error`."""
    scope = await asyncio.to_thread(scope_of, parts.database, caller.tenant_id)
    events = parts.answerer.stream(data.to_ask(scope))
    if data.stream or EVENT_STREAM in request.headers.get("accept", ""):
        return await _streamed(events, request)
    done = await unless_disconnected(request, _last(events))
    return Response(AnswerView.of(done), media_type=MediaType.JSON)


async def _last(events: Events) -> Done:
    async with aclosing(events) as closing:  # type: ignore[type-var]
        async for event in closing:
            if isinstance(event, Done):
                return event
    raise AssertionError("a stream ends with Done")


async def _streamed(events: Events, request: Request[Any, Any, Any]) -> ServerSentEvent:
    """What goes wrong before the first event is an ordinary error response; after it, an `error` event."""
    first = await unless_disconnected(request, anext(events))
    return ServerSentEvent(_messages(first, events))


async def _messages(first: Delta | Done, events: Events) -> AsyncIterator[ServerSentEventMessage]:
    async with aclosing(events) as closing:  # type: ignore[type-var]
        yield _message(first)
        try:
            async for event in closing:
                yield _message(event)
        except Exception as error:  # the status line is out: the client learns it from the stream
            yield _encoded("error", problem_of(error))


def _message(event: Delta | Done) -> ServerSentEventMessage:
    return _encoded("delta", event) if isinstance(event, Delta) else _encoded("done", AnswerView.of(event))


def _encoded(name: str, value: object) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=name, data=msgspec.json.encode(value), sep="\n")
