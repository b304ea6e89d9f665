"""Answers as responses: a file search and a message."""

import time
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from api.openai.fields import TextFormat
from api.openai.sources import AnswerFacts, attributes_of, citations_of, facts_of
from ragkv.answer.question import Answer, Question, Usage
from ragkv.catalog.attachments import StoreEntry
from ragkv.ids import new_id

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class FileSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that the answer was generated from."""

    file_id: str
    filename: str
    score: float
    text: str
    attributes: dict[str, str | int | float | bool]
    outdated: str | None = None


class FileSearchCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="file_search_call"):
    """The file search that every response begins with."""

    id: str
    queries: list[str]
    status: Literal["in_progress", "completed"]
    results: list[FileSearchResult] | None = None


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """A file citation."""

    file_id: str
    filename: str
    index: int
    outdated: str | None = None
    type: Literal["file_citation"] = "file_citation"


class OutputText(msgspec.Struct, frozen=True, kw_only=True):
    """The text of the answer with its citations."""

    text: str
    annotations: list[Annotation]
    logprobs: list[dict[str, Any]] = []
    type: Literal["output_text"] = "output_text"


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The message with the answer."""

    id: str
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class InputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Input tokens that were not computed for this question."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of the output tokens."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a response."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> "ResponseUsage":
        return cls(
            input_tokens=usage.prompt,
            input_tokens_details=InputDetails(cached_tokens=usage.cached + usage.stitched),
            output_tokens=usage.completion,
            output_tokens_details=OutputDetails(),
            total_tokens=usage.prompt + usage.completion,
        )


class Incomplete(msgspec.Struct, frozen=True):
    """The reason why a response is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFailure(msgspec.Struct, frozen=True):
    """The error that ended a streamed response."""

    message: str
    code: Literal["server_error"] = "server_error"


class TextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text options of the answer."""

    format: TextFormat | None = None


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """A response. Responses are not stored and cannot be retrieved later."""

    id: str
    created_at: int
    model: str
    status: ResponseStatus
    output: list[FileSearchCall | OutputMessage] = []
    usage: ResponseUsage | None = None
    error: ResponseFailure | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    store: bool = False
    temperature: float = 0.0
    text: TextConfig = TextConfig(TextFormat("text"))
    tool_choice: Any = "auto"
    tools: list[Any] = []
    top_p: float = 1.0
    truncation: Literal["disabled"] = "disabled"
    ragkv: AnswerFacts | UnsetType = UNSET
    object: Literal["response"] = "response"


@dataclass(frozen=True, slots=True)
class ResponseDraft:
    """A response before its answer. `initial` is how its stream begins; the rest is repeated from the question."""

    initial: ResponseObject
    question: str
    collection_id: str
    with_results: bool
    search_id: str
    message_id: str

    @classmethod
    def now(cls, question: Question, *, with_results: bool, **fields: Any) -> "ResponseDraft":
        initial = ResponseObject(id=f"resp_{question.id}", created_at=int(time.time()), status="in_progress", **fields)
        return cls(initial, question.text, question.collection_id, with_results, f"fs_{new_id()}", f"msg_{new_id()}")


def response_of(draft: ResponseDraft, answer: Answer, sources: dict[str, StoreEntry]) -> ResponseObject:
    cut_off = answer.finish_reason == "length"
    return msgspec.structs.replace(
        draft.initial,
        status="incomplete" if cut_off else "completed",
        output=[search_of(draft, answer, sources), message_of(draft, answer, sources)],
        usage=ResponseUsage.of(answer.usage),
        incomplete_details=Incomplete() if cut_off else None,
        ragkv=facts_of(answer, draft.collection_id),
    )


def search_of(draft: ResponseDraft, answer: Answer, sources: dict[str, StoreEntry]) -> FileSearchCall:
    """The file search, passages best first."""
    results = None
    if draft.with_results:
        best_first = sorted(answer.passages, key=lambda passage: passage.score, reverse=True)
        known = ((passage, sources.get(passage.chunk.document_id)) for passage in best_first)
        results = [
            FileSearchResult(
                file_id=entry.file_id,
                filename=entry.document.name,
                score=passage.score,
                text=passage.chunk.text,
                attributes=attributes_of(entry.document.metadata),
                outdated=passage.chunk.outdated,
            )
            for passage, entry in known
            if entry is not None
        ]
    return FileSearchCall(id=draft.search_id, queries=[draft.question], status="completed", results=results)


def message_of(draft: ResponseDraft, answer: Answer, sources: dict[str, StoreEntry]) -> OutputMessage:
    text = OutputText(text=answer.text, annotations=annotations_of(answer, sources))
    status: Literal["completed", "incomplete"] = "incomplete" if answer.finish_reason == "length" else "completed"
    return OutputMessage(id=draft.message_id, status=status, content=[text])


def annotations_of(answer: Answer, sources: dict[str, StoreEntry]) -> list[Annotation]:
    """Citations, one for each file and position, in the order of the text."""
    cited = {(one.answer_end, one.file_id): one for one in citations_of(answer, sources)}
    return [
        Annotation(file_id=file_id, filename=one.filename, index=index, outdated=one.outdated)
        for (index, file_id), one in sorted(cited.items(), key=lambda item: item[0])
    ]
