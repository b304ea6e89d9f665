"""Answers as chat completions, whole or as chunks."""

import time
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from litestar.response import ServerSentEventMessage
from msgspec import UNSET, UnsetType

from api.openai.errors import ErrorBody
from api.openai.errors import facts_of as facts_of_error
from api.openai.fields import Created
from api.openai.sources import AnswerFacts, FileCitation, citations_of, facts_of
from api.openai.streaming import Messages, Sources
from ragkv.answer.question import Answer, Question, Usage
from ragkv.service.documents.cited import checksum_of

FinishReason = Literal["stop", "length"]
LAST = ServerSentEventMessage(data="[DONE]", sep="\n")


class PromptDetails(msgspec.Struct, frozen=True):
    """Prompt tokens that were not computed for this question."""

    cached_tokens: Annotated[int, "Tokens found in the engine's cache or stitched from stored KV."]


class CompletionUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a chat completion."""

    prompt_tokens: Annotated[int, "Tokens of the prompt."]
    completion_tokens: Annotated[int, "Tokens of the answer."]
    total_tokens: Annotated[int, "Tokens of the prompt and the answer."]
    prompt_tokens_details: Annotated[PromptDetails, "Details of the prompt tokens."]

    @classmethod
    def of(cls, usage: Usage) -> "CompletionUsage":
        return cls(
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            total_tokens=usage.prompt + usage.completion,
            prompt_tokens_details=PromptDetails(usage.cached + usage.stitched),
        )


class URLCitation(msgspec.Struct, frozen=True, kw_only=True):
    """A citation in OpenAI's form: a place in a document supports characters [start_index, end_index) of the answer."""

    start_index: Annotated[int, "Offset of the first supported character in the answer."]
    end_index: Annotated[int, "Offset after the last supported character in the answer."]
    title: Annotated[str, "Name of the cited file, with its page, slide or sheet."]
    url: Annotated[
        str, "Page of the dashboard with the cited words marked: a path, after RAGKV_PUBLIC_URL where that is set."
    ]


class URLAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """A citation, as clients that know nothing of `citations` read it."""

    url_citation: Annotated[URLCitation, "The cited place."]
    type: Literal["url_citation"] = "url_citation"


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer with its citations."""

    content: Annotated[str, "Text of the answer."]
    annotations: Annotated[list[URLAnnotation], "The citations in OpenAI's form."]
    citations: Annotated[list[FileCitation], "Citations in the order of the answer."]
    role: Literal["assistant"] = "assistant"
    refusal: Annotated[None, "Always null."] = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. There is always exactly one choice."""

    message: Annotated[AnswerMessage, "Message with the answer."]
    finish_reason: Annotated[
        FinishReason, "`stop`: the answer is complete. `length`: it reached the maximum number of tokens."
    ]
    index: Annotated[int, "Always 0."] = 0
    logprobs: Annotated[None, "Log probabilities are not returned."] = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion."""

    id: str
    created: Created
    model: Annotated[str, "Model as requested."]
    choices: Annotated[list[Choice], "The answer, as the only choice."]
    usage: Annotated[CompletionUsage, "Token counts."]
    ragkv: Annotated[AnswerFacts, "Details that are not part of OpenAI's API."]
    object: Literal["chat.completion"] = "chat.completion"


class ChunkDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The new part of the message. `annotations` and `citations` come with the last chunk."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    annotations: list[URLAnnotation] | UnsetType = UNSET
    citations: list[FileCitation] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the one answer."""

    delta: ChunkDelta
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: None = None


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream. `usage` is there if it was asked for, and null in all but the last."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    ragkv: AnswerFacts | UnsetType = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


@dataclass(frozen=True, slots=True)
class Heading:
    """Fields that a completion and all its chunks share, the collection, and the dashboard's origin for links to it."""

    id: str
    created: int
    model: str
    collection_id: str
    public_url: str = ""

    @classmethod
    def now(cls, model: str, question: Question, public_url: str | None) -> "Heading":
        origin = (public_url or "").rstrip("/")
        return cls(f"chatcmpl-{question.id}", int(time.time()), model, question.collection_id, origin)


def completion_of(heading: Heading, answer: Answer, sources: Sources) -> ChatCompletion:
    message = _message_of(heading, answer, sources)
    return ChatCompletion(
        id=heading.id,
        created=heading.created,
        model=heading.model,
        choices=[Choice(message=message, finish_reason=finish_reason_of(answer))],
        usage=CompletionUsage.of(answer.usage),
        ragkv=facts_of(answer, heading.collection_id),
    )


def _message_of(heading: Heading, answer: Answer, sources: Sources) -> AnswerMessage:
    citations = citations_of(answer, sources)
    annotations = [annotation_of(citation, heading.public_url) for citation in citations]
    return AnswerMessage(content=answer.text, annotations=annotations, citations=citations)


def annotation_of(citation: FileCitation, public_url: str) -> URLAnnotation:
    """The citation with a link to its place in the dashboard."""
    place = f"{citation.start}-{citation.end}-{checksum_of(citation.quote)}"
    return URLAnnotation(
        url_citation=URLCitation(
            start_index=citation.answer_start,
            end_index=citation.answer_end,
            title=", ".join(filter(None, (citation.filename, citation.page_label))),
            url=f"{public_url}/admin/documents/{citation.document_id}?at={place}",
        )
    )


def finish_reason_of(answer: Answer) -> FinishReason:
    """OpenAI's finish reason: "length" for a truncated answer, "stop" for any other."""
    return "length" if answer.finish_reason == "length" else "stop"


class ChunkEncoder:
    """Encodes an answer as chat completion chunks."""

    def __init__(self, heading: Heading, *, with_usage: bool) -> None:
        self._heading = heading
        self._with_usage = with_usage

    def start(self) -> Messages:
        yield _event(self._chunk(ChunkDelta(role="assistant", content="")))

    def delta(self, text: str) -> Messages:
        yield _event(self._chunk(ChunkDelta(content=text)))

    def finish(self, answer: Answer, sources: Sources) -> Messages:
        message = _message_of(self._heading, answer, sources)
        delta = ChunkDelta(annotations=message.annotations, citations=message.citations)
        last = self._chunk(delta, finish_reason_of(answer))
        yield _event(msgspec.structs.replace(last, ragkv=facts_of(answer, self._heading.collection_id)))
        if self._with_usage:
            usage = CompletionUsage.of(answer.usage)
            yield _event(msgspec.structs.replace(last, choices=[], usage=usage))
        yield LAST

    def error(self, error: Exception) -> Messages:
        yield _event(ErrorBody(facts_of_error(error)[1]))

    def _chunk(self, delta: ChunkDelta, finish_reason: FinishReason | None = None) -> ChatChunk:
        return ChatChunk(
            id=self._heading.id,
            created=self._heading.created,
            model=self._heading.model,
            choices=[ChunkChoice(delta=delta, finish_reason=finish_reason)],
            usage=None if self._with_usage else UNSET,
        )


def _event(value: msgspec.Struct) -> ServerSentEventMessage:
    return ServerSentEventMessage(data=msgspec.json.encode(value), sep="\n")
