"""/v1/ask: answers to questions, whole or streamed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec
from litestar import MediaType, Request, Response
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import Meta

from api.access.auth import reading
from api.access.concurrency import asking
from api.http.disconnect import unless_disconnected
from api.http.draining import STOPPING
from api.http.errors import json_problems, problem_of
from api.http.methods import post
from api.http.sse import EVENT_STREAM, KEEP_ALIVE, KEEP_ALIVE_EVERY_S, event_message, with_silences
from api.v1.passages import (
    DocumentIdList,
    Filters,
    Hops,
    PassageView,
    QuestionText,
    ScoreThreshold,
    TopK,
    boxes_path,
    searched_documents,
    text_path,
)
from api.v1.sampling import SamplingFields
from ragkv.answer.question import (
    Answer,
    CachedAnswer,
    Citation,
    Delta,
    PromptSpan,
    Question,
    Timings,
    Turn,
    Usage,
    check_question_text,
)
from ragkv.chunk import relevance_of
from ragkv.errors import Unavailable
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_COLLECTION, CollectionRef
from ragkv.service.documents.cited import Outdated
from ragkv.service.documents.listing import PageLabel, PageNumber, TextEnd, TextStart
from ragkv.service.parts import Parts
from ragkv.service.statistics.views import Cached, Computed, Recomputed, Stitched
from ragkv.settings import LEAST_READ, Mode
from ragkv.stitch.policies import BLOCK_SIZES, PolicyAlias, PolicyName, policy_name

BODY_BYTES = 1024 * 1024

OPTIONS = (
    "mode", "recompute_ratio", "block_size", "sparse_ratio", "top_k", "hops", "max_tokens", "answer_cache",
    "retrieval",
)  # fmt: skip
"""Fields of the body that a `Question` has too."""

PageTextPath = Annotated[
    str,
    "Path of the text of its page, slide or sheet. Requests are refused (422) once the words at this place have "
    "changed.",
]
PageBoxesPath = Annotated[
    str | None,
    "Path of the boxes over it on the picture of its page, with the same refusal; null where pages have no pictures.",
]

NoPassages = Annotated[
    bool, "Whether there is nothing that the answer is from: no searchable document, or none that matches the filter."
]

Warnings = Annotated[
    list[str], "Reasons in words why the answer may be worse or later than it could be; empty for most questions."
]

Events = AsyncGenerator[Delta | Answer, None]
KeptAlive = AsyncGenerator[Delta | Answer | None, None]
"""Events as `with_silences` gives them."""


class TurnBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An earlier message of the conversation."""

    role: Annotated[Literal["user", "assistant"], "Author of the message."]
    content: Annotated[str, "Text of the message.", Meta(max_length=100_000)]


class AskBody(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question. Omitted options take the values of the service's settings."""

    question: QuestionText
    collection: Annotated[str, "Collection id or name."] = DEFAULT_COLLECTION
    filter: Filters | None = None
    document_ids: DocumentIdList | None = None
    history: Annotated[list[TurnBody], "Earlier messages of the conversation, oldest first.", Meta(max_length=200)] = (
        msgspec.field(default_factory=list)
    )
    stream: Annotated[bool, "Whether to stream the answer as server-sent events."] = False
    mode: Annotated[Mode, "`stitched`: use stored KV. `full`: compute the whole prompt."] = "stitched"
    policy: Annotated[
        PolicyName | PolicyAlias | None, "Policy that selects which tokens of the passages to recompute."
    ] = None
    recompute_ratio: Annotated[float, "Share of the passages' tokens to recompute.", Meta(ge=0, le=1)] | None = None
    block_size: (
        Annotated[
            int,
            "Number of adjacent tokens that are selected for recomputation together.",
            Meta(ge=BLOCK_SIZES[0], le=BLOCK_SIZES[-1]),
        ]
        | None
    ) = None
    sparse_ratio: (
        Annotated[
            float,
            "Share of the passages' tokens to read, from the best passages found; 1 for all. All are read in mode "
            "`full`, or if everything is recomputed.",
            Meta(ge=LEAST_READ, le=1),
        ]
        | None
    ) = None
    top_k: TopK | None = None
    hops: Hops | None = None
    score_threshold: ScoreThreshold | None = None
    max_tokens: Annotated[int, "Maximum number of tokens of the answer.", Meta(ge=1, le=1_000_000)] | None = None
    retrieval: Annotated[bool, "Whether passages are searched for. False: answer from the conversation alone."] = True
    answer_cache: Annotated[bool, "Whether the answer may come from the collection's answer cache."] = True

    def to_question(self, caller: Caller, ref: CollectionRef, document_ids: frozenset[str] | None) -> Question:
        return Question(
            tenant_id=ref.tenant_id,
            collection_id=ref.collection_id,
            text=self.question,
            document_ids=document_ids,
            relevance_threshold=relevance_of(self.score_threshold or 0.0),
            policy=policy_name(self.policy),
            history=tuple(Turn(turn.role, turn.content) for turn in self.history),
            sees_kept_question=caller.may("admin"),
            sampling=self.sampling(),
            **{name: getattr(self, name) for name in OPTIONS},
        )


class CachedTokens(msgspec.Struct, frozen=True):
    """Prompt tokens that were not computed for this question."""

    cached_tokens: Annotated[int, "Sum of `cached` and `stitched`."]


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a question: `prompt` = `cached` + `stitched` + `recomputed` + `computed`."""

    prompt: Annotated[int, "Tokens of the prompt."]
    cached: Cached
    stitched: Stitched
    recomputed: Recomputed
    computed: Computed
    completion: Annotated[int, "Tokens of the answer."]
    failed_chunks: Annotated[int, "Number of chunks without usable KV."]
    prompt_tokens: Annotated[int, "Same as `prompt`."]
    completion_tokens: Annotated[int, "Same as `completion`."]
    total_tokens: Annotated[int, "Tokens of the prompt and the answer."]
    prompt_tokens_details: Annotated[CachedTokens, "Details of the prompt tokens."]

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

    answer_start: Annotated[int, "Offset of the first supported character in the answer."]
    answer_end: Annotated[int, "Offset after the last supported character in the answer."]
    chunk_id: Annotated[str, "Id of the chunk."]
    document_id: str
    title: Annotated[str, "Title of the document."]
    page: PageNumber
    start: TextStart
    end: TextEnd
    quote: Annotated[str, "Text of the document at this place."]
    page_label: PageLabel = None
    page_text: PageTextPath
    page_boxes: PageBoxesPath = None
    outdated: Outdated = None

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

    id: Annotated[str, "Id of the answer, for feedback."]
    answer: Annotated[str, "Text of the answer."]
    finish_reason: Annotated[str, "`stop`: the answer is complete. `length`: it reached the maximum number of tokens."]
    citations: Annotated[list[CitationView], "Citations in the order of the answer."]
    passages: Annotated[
        list[PassageView], "Passages of the prompt, best first; `prompt_position` is their order in the prompt."
    ]
    timings: Annotated[Timings, "Durations of the answer."]
    usage: Annotated[UsageView, "Token counts of the question."]
    prompt_spans: Annotated[
        tuple[PromptSpan, ...], "Origin of each part of the prompt, from the first token to the last."
    ] = ()
    cached_answer: Annotated[
        CachedAnswer | None, "Cache entry that the answer was taken from; null if the answer was generated."
    ] = None
    omitted_passages: Annotated[
        list[PassageView],
        "Passages that were found but not read: beyond the model's window, or the `sparse_ratio`; best first.",
    ] = []
    no_passages: NoPassages = False
    warnings: Warnings = []

    @classmethod
    def of(cls, answer: Answer) -> "AnswerView":
        answer = answer.best_first()
        kv = answer.kv or [None] * len(answer.passages)
        passages = [PassageView.of(*facts) for facts in zip(answer.passages, kv, answer.prompt_positions, strict=True)]
        media_types = {passage.chunk.document_id: passage.chunk.media_type for passage in answer.passages}
        return cls(
            answer.id,
            answer.text,
            answer.finish_reason,
            [CitationView.of(citation, media_types.get(citation.document_id, "")) for citation in answer.citations],
            passages,
            answer.timings,
            UsageView.of(answer.usage),
            answer.prompt_spans,
            answer.cached_answer,
            [PassageView.of(passage) for passage in answer.omitted_passages],
            answer.no_passages,
            list(answer.warnings),
        )


@post(
    "/v1/ask",
    "Ask a question",
    json_problems(
        NOT_FOUND="No such collection or document.",
        REQUEST_ENTITY_TOO_LARGE="The question, the body or the resulting prompt is too large.",
        UNPROCESSABLE_ENTITY="The question is empty.",
    ),
    reading,
    asking,
    status_code=200,
    tags=["questions"],
    request_max_body_size=BODY_BYTES,
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
    question = await asyncio.to_thread(question_of, caller, data, parts.database)
    events = (await parts.loaded()).answerer.stream(question)
    if data.stream or EVENT_STREAM in request.headers.get("accept", ""):
        kept_alive = with_silences(events, KEEP_ALIVE_EVERY_S)
        opening = await unless_disconnected(request, anext(kept_alive))  # a failure until here is an ordinary error
        return ServerSentEvent(_messages(opening, kept_alive))
    answer = await unless_disconnected(request, whole_answer(events))
    return Response(AnswerView.of(answer), media_type=MediaType.JSON)


async def whole_answer(events: Events) -> Answer:
    """The answer that a stream of events ends with."""
    async with aclosing(events) as closing:
        async for event in closing:
            if isinstance(event, Answer):
                return event
    raise AssertionError("a stream ends with an Answer")


def question_of(caller: Caller, body: AskBody, database: Database) -> Question:
    """The question that a request asks. Raises Rejected or TooLarge for the question, NotFound for the collection or a
    document."""
    check_question_text(body.question)
    documents = searched_documents(caller.tenant_id, body.collection, body.filter, body.document_ids, database)
    return body.to_question(caller, *documents)


async def _messages(opening: Delta | Answer | None, events: KeptAlive) -> AsyncIterator[ServerSentEventMessage]:
    async with aclosing(events) as closing:
        yield _message(opening)
        try:
            async for event in closing:
                yield _message(event)
        except asyncio.CancelledError:  # by the server as it stops, unless the client is gone
            yield event_message("error", problem_of(Unavailable(STOPPING)))
            raise
        except Exception as error:  # the status line is out: the client learns it from the stream
            yield event_message("error", problem_of(error))


def _message(event: Delta | Answer | None) -> ServerSentEventMessage:
    if event is None:
        return KEEP_ALIVE
    return event_message("delta", event) if isinstance(event, Delta) else event_message("done", AnswerView.of(event))
