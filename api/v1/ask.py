"""/v1/ask: answers to questions, whole or streamed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec
from litestar import MediaType, Request, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import Meta

from api.access.auth import reading
from api.access.concurrency import asking
from api.http.disconnect import unless_disconnected
from api.http.errors import json_problems, problem_of
from api.http.sse import KEEP_ALIVE, KEEP_ALIVE_EVERY_S, event_message, with_silences
from api.v1.pages import boxes_path, text_path
from api.v1.passages import DocumentIdList, Filters, Hops, PassageView, QuestionText, TopK, chosen_documents
from ragkv.access.caller import Caller
from ragkv.answer.limits import check_question_text
from ragkv.answer.question import Answer, CachedAnswer, Citation, Delta, PromptSpan, Question, Timings, Turn, Usage
from ragkv.db.tenants import collection_ref
from ragkv.parts import Parts
from ragkv.policies import PolicyAlias, PolicyName, policy_name
from ragkv.settings import BLOCK_SIZES, LEAST_READ, Mode
from ragkv.tenancy import DEFAULT_COLLECTION, CollectionRef

EVENT_STREAM = "text/event-stream"
BODY_BYTES = 1024 * 1024

OPTIONS = (
    "mode", "recompute_ratio", "block_size", "sparse_ratio", "top_k", "hops", "max_tokens", "answer_cache",
)  # fmt: skip
"""Fields of the body that a `Question` has too."""

Events = AsyncGenerator[Delta | Answer, None]
KeptAlive = AsyncGenerator[Delta | Answer | None, None]
"""Events as `with_silences` gives them."""


class TurnBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An earlier message of the conversation."""

    role: Literal["user", "assistant"]
    content: Annotated[str, Meta(max_length=100_000)]


class AskBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question. Omitted options take the values of the service's settings."""

    question: QuestionText
    collection: str = DEFAULT_COLLECTION
    filter: Filters | None = None
    document_ids: DocumentIdList | None = None
    history: Annotated[list[TurnBody], Meta(max_length=200)] = []
    stream: bool = False
    mode: Mode = "stitched"
    policy: PolicyName | PolicyAlias | None = None
    recompute_ratio: Annotated[float, Meta(ge=0, le=1)] | None = None
    block_size: Annotated[int, Meta(ge=BLOCK_SIZES[0], le=BLOCK_SIZES[-1])] | None = None
    sparse_ratio: Annotated[float, Meta(ge=LEAST_READ, le=1)] | None = None
    top_k: TopK | None = None
    hops: Hops | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    answer_cache: bool = True

    def to_question(self, caller: Caller, ref: CollectionRef, document_ids: frozenset[str] | None) -> Question:
        return Question(
            tenant_id=ref.tenant_id,
            collection_id=ref.collection_id,
            text=self.question,
            document_ids=document_ids,
            policy=policy_name(self.policy),
            history=tuple(Turn(turn.role, turn.content) for turn in self.history),
            sees_kept_question=caller.may("admin"),
            **{name: getattr(self, name) for name in OPTIONS},
        )


class CachedTokens(msgspec.Struct, frozen=True):
    """Prompt tokens that were not computed for this question."""

    cached_tokens: int


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a question: `prompt` = `cached` + `stitched` + `recomputed` + `computed`."""

    prompt: int
    cached: int
    stitched: int
    recomputed: int
    computed: int
    completion: int
    failed_chunks: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens

    @classmethod
    def of(cls, usage: Usage) -> "UsageView":
        return cls(
            **asdict(usage),
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            total_tokens=usage.prompt + usage.completion,
            prompt_tokens_details=CachedTokens(usage.cached + usage.stitched),
        )


class CitationView(msgspec.Struct, frozen=True, kw_only=True):
    """A citation: characters [start, end) of a document's text support characters [answer_start, answer_end) of the
    answer."""

    answer_start: int
    answer_end: int
    chunk_id: str
    document_id: str
    title: str
    page: int | None
    start: int
    end: int
    quote: str
    page_label: str | None = None
    page_text: str
    page_boxes: str | None = None
    outdated: str | None = None

    @classmethod
    def of(cls, citation: Citation, media_type: str) -> "CitationView":
        place = (citation.start, citation.end, citation.quote)
        return cls(
            **asdict(citation),
            page_text=text_path(citation.document_id, *place),
            page_boxes=boxes_path(citation.document_id, media_type, *place),
        )


class AnswerView(msgspec.Struct, frozen=True):
    """An answer with its citations, passages, timings and token counts."""

    id: str
    answer: str
    finish_reason: str
    citations: list[CitationView]
    passages: list[PassageView]
    timings: Timings
    usage: UsageView
    prompt_spans: tuple[PromptSpan, ...] = ()
    cached_answer: CachedAnswer | None = None
    omitted_passages: list[PassageView] = []

    @classmethod
    def of(cls, answer: Answer) -> "AnswerView":
        kv = answer.kv or [None] * len(answer.passages)
        passages = [PassageView.of(*pair) for pair in zip(answer.passages, kv, strict=True)]
        media_types = {passage.chunk.document_id: passage.chunk.media_type for passage in answer.passages}
        return cls(
            answer.id,
            answer.text,
            answer.finish_reason,
            [CitationView.of(one, media_types.get(one.document_id, "")) for one in answer.citations],
            passages,
            answer.timings,
            UsageView.of(answer.usage),
            answer.prompt_spans,
            answer.cached_answer,
            [PassageView.of(passage) for passage in answer.omitted_passages],
        )


@post(
    "/v1/ask",
    status_code=200,
    tags=["questions"],
    guards=[reading, asking],
    request_max_body_size=BODY_BYTES,
    summary="Ask a question",
    responses=json_problems(
        NOT_FOUND="No such collection or document, or the collection has no searchable documents.",
        REQUEST_ENTITY_TOO_LARGE="The question, the body or the resulting prompt is too large.",
        UNPROCESSABLE_ENTITY="The question is empty.",
    ),
)
async def ask(
    data: JSONBody[AskBody],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> Response[AnswerView] | ServerSentEvent:
    """Answer a question from the documents of a collection, with citations.

    Set `stream` or send `Accept: text/event-stream` for a stream of server-sent events: `delta` events with text, then
    one `done` event with the whole answer, or one `error` event.
    """
    question = await asyncio.to_thread(question_of, caller, data, parts)
    events = (await parts.loaded()).answerer.stream(question)
    if data.stream or EVENT_STREAM in request.headers.get("accept", ""):
        kept_alive = with_silences(events, KEEP_ALIVE_EVERY_S)
        first = await unless_disconnected(request, anext(kept_alive))  # a failure until here is an ordinary error
        return ServerSentEvent(_messages(first, kept_alive))
    answer = await unless_disconnected(request, whole_answer(events))
    return Response(AnswerView.of(answer), media_type=MediaType.JSON)


async def whole_answer(events: Events) -> Answer:
    """The answer that a stream of events ends with."""
    async with aclosing(events) as closing:
        async for event in closing:
            if isinstance(event, Answer):
                return event
    raise AssertionError("a stream ends with an Answer")


def question_of(caller: Caller, body: AskBody, parts: Parts) -> Question:
    """The question that a request asks. Raises Rejected or TooLarge for the question, NotFound for the collection or a
    document."""
    check_question_text(body.question)
    ref = collection_ref(caller.tenant_id, body.collection, parts.database)
    return body.to_question(caller, ref, chosen_documents(ref, body.filter, body.document_ids, parts))


async def _messages(first: Delta | Answer | None, events: KeptAlive) -> AsyncIterator[ServerSentEventMessage]:
    async with aclosing(events) as closing:
        yield _message(first)
        try:
            async for event in closing:
                yield _message(event)
        except Exception as error:  # the status line is out: the client learns it from the stream
            yield event_message("error", problem_of(error))


def _message(event: Delta | Answer | None) -> ServerSentEventMessage:
    if event is None:
        return KEEP_ALIVE
    return event_message("delta", event) if isinstance(event, Delta) else event_message("done", AnswerView.of(event))
