"""Answers as responses: a file search and a message, whole or as numbered events."""

import time
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, Literal

import msgspec
from litestar.response import ServerSentEventMessage
from msgspec import UNSET, UnsetType

from api.http.sse import event_message
from api.openai.errors import facts_of as facts_of_error
from api.openai.fields import Created, Outdated, Score, attributes_of
from api.openai.formats import PlainText, TextFormat
from api.openai.sources import AnswerFacts, citations_of, facts_of
from api.openai.streaming import Messages, Sources
from ragkv.answer.question import Answer, Question, Usage
from ragkv.ids import new_id
from ragkv.service.files.attachments import StoreEntry

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]

SEARCH, MESSAGE = 0, 1
"""Indices of the output."""


class FileSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that the answer was generated from."""

    file_id: Annotated[str, "Id of the file."]
    filename: Annotated[str, "Name of the file."]
    score: Score
    text: Annotated[str, "Text of the passage."]
    attributes: Annotated[dict[str, str | int | float | bool], "Attributes of the file."]
    outdated: Outdated = None


class FileSearchCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="file_search_call"):
    """The file search that every response begins with."""

    id: str
    queries: Annotated[list[str], "Queries of the search."]
    status: Annotated[Literal["in_progress", "completed"], "Status of the item."]
    results: Annotated[list[FileSearchResult] | None, "Passages, best first; null unless requested with `include`."] = (
        None
    )


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """A file citation."""

    file_id: Annotated[str, "Id of the cited file."]
    filename: Annotated[str, "Name of the cited file."]
    index: Annotated[int, "Offset in the text at which the cited passage ends."]
    outdated: Outdated = None
    type: Literal["file_citation"] = "file_citation"


class OutputText(msgspec.Struct, frozen=True, kw_only=True):
    """The text of the answer with its citations."""

    text: Annotated[str, "Text of the answer."]
    annotations: Annotated[list[Annotation], "Citations of files, in the order of the text."]
    logprobs: Annotated[list[dict[str, Any]], "Log probabilities are not returned."] = []
    type: Literal["output_text"] = "output_text"


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The message with the answer."""

    id: str
    status: Annotated[Literal["in_progress", "completed", "incomplete"], "Status of the item."]
    content: Annotated[list[OutputText], "The text of the answer, as the only part."]
    role: Literal["assistant"] = "assistant"


class InputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Input tokens that were not computed for this question."""

    cached_tokens: Annotated[int, "Tokens found in the engine's cache or stitched from stored KV."]
    cache_write_tokens: Annotated[int, "Always 0."] = 0


class OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of the output tokens."""

    reasoning_tokens: Annotated[int, "Always 0: reasoning is not counted separately."] = 0


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a response."""

    input_tokens: Annotated[int, "Tokens of the prompt."]
    input_tokens_details: Annotated[InputDetails, "Details of the input tokens."]
    output_tokens: Annotated[int, "Tokens of the answer."]
    output_tokens_details: Annotated[OutputDetails, "Details of the output tokens."]
    total_tokens: Annotated[int, "Tokens of the prompt and the answer."]

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

    reason: Annotated[
        Literal["max_output_tokens"], "Always `max_output_tokens`: the answer reached the maximum number of tokens."
    ] = "max_output_tokens"


class ResponseFailure(msgspec.Struct, frozen=True):
    """The error that ended a streamed response."""

    message: Annotated[str, "Explanation of the error."]
    code: Annotated[Literal["server_error"], "Code of the error."] = "server_error"


class TextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text options of the answer."""

    format: Annotated[TextFormat | None, "Format of the answer; text by default."] = None


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """A response. Responses are not stored and cannot be retrieved later."""

    id: str
    created_at: Created
    model: Annotated[str, "Model as requested."]
    status: Annotated[ResponseStatus, "Status of the response."]
    output: Annotated[list[FileSearchCall | OutputMessage], "The file search and the message with the answer."] = []
    usage: Annotated[ResponseUsage | None, "Token counts; null until the response is finished."] = None
    error: Annotated[ResponseFailure | None, "Error that ended the response; null without one."] = None
    incomplete_details: Annotated[
        Incomplete | None, "Reason why the response is incomplete; null for a complete one."
    ] = None
    instructions: Annotated[str | None, "Instructions as requested."] = None
    max_output_tokens: Annotated[int | None, "Maximum number of tokens as requested."] = None
    metadata: Annotated[dict[str, str], "Metadata as requested."] = {}
    parallel_tool_calls: Annotated[bool, "As requested; no effect on the answer."] = True
    previous_response_id: Annotated[None, "Always null."] = None
    store: Annotated[bool, "Always false: responses are not stored."] = False
    temperature: Annotated[float, "Sampling temperature: 0 unless requested."] = 0.0
    text: Annotated[TextConfig, "Text options of the answer."] = TextConfig(PlainText())
    tool_choice: Annotated[Any, "Choice of the tool as requested."] = "auto"
    tools: Annotated[list[Any], "Tools as requested."] = []
    top_p: Annotated[float, "Probability mass of the tokens to sample from: 1 unless requested."] = 1.0
    truncation: Literal["disabled"] = "disabled"
    ragkv: Annotated[AnswerFacts | UnsetType, "Details that are not part of OpenAI's API."] = UNSET
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
    is_cut_off = answer.finish_reason == "length"
    status: Literal["completed", "incomplete"] = "incomplete" if is_cut_off else "completed"
    text = OutputText(text=answer.text, annotations=annotations_of(answer, sources))
    message = OutputMessage(id=draft.message_id, status=status, content=[text])
    return msgspec.structs.replace(
        draft.initial,
        status=status,
        output=[search_of(draft, answer, sources), message],
        usage=ResponseUsage.of(answer.usage),
        incomplete_details=Incomplete() if is_cut_off else None,
        ragkv=facts_of(answer, draft.collection_id),
    )


def search_of(draft: ResponseDraft, answer: Answer, sources: dict[str, StoreEntry]) -> FileSearchCall:
    """The file search, passages best first."""
    results = None
    if draft.with_results:
        best_first = answer.best_first().passages
        pairs = ((passage, sources.get(passage.chunk.document_id)) for passage in best_first)
        results = [
            FileSearchResult(
                file_id=entry.file_id,
                filename=entry.document.name,
                score=passage.relevance,
                text=passage.chunk.text,
                attributes=attributes_of(entry.document.metadata),
                outdated=passage.chunk.outdated,
            )
            for passage, entry in pairs
            if entry is not None
        ]
    return FileSearchCall(id=draft.search_id, queries=[draft.question], status="completed", results=results)


def annotations_of(answer: Answer, sources: dict[str, StoreEntry]) -> list[Annotation]:
    """Citations, one for each file and position, in the order of the text."""
    cited = {(citation.answer_end, citation.file_id): citation for citation in citations_of(answer, sources)}
    return [
        Annotation(file_id=file_id, filename=citation.filename, index=index, outdated=citation.outdated)
        for (index, file_id), citation in sorted(cited.items(), key=lambda item: item[0])
    ]


class ResponseEventEncoder:
    """Encodes an answer as the events of a response.

    The search is over when the first word comes, but its passages are known only with the last: its item is done after
    the text.
    """

    def __init__(self, draft: ResponseDraft) -> None:
        self._draft = draft
        self._numbers = count()
        self._text = ""

    def start(self) -> Messages:
        search = FileSearchCall(id=self._draft.search_id, queries=[], status="in_progress")
        message = OutputMessage(id=self._draft.message_id, status="in_progress", content=[])
        yield self._event("response.created", response=self._draft.initial)
        yield self._event("response.in_progress", response=self._draft.initial)
        yield self._event("response.output_item.added", output_index=SEARCH, item=search)
        for step in ("in_progress", "searching", "completed"):
            yield self._event(f"response.file_search_call.{step}", output_index=SEARCH, item_id=search.id)
        yield self._event("response.output_item.added", output_index=MESSAGE, item=message)
        yield self._of_text("response.content_part.added", part=OutputText(text="", annotations=[]))

    def delta(self, text: str) -> Messages:
        self._text += text
        yield self._of_text("response.output_text.delta", delta=text, logprobs=[])

    def finish(self, answer: Answer, sources: Sources) -> Messages:
        response = response_of(self._draft, answer, sources)
        search, message = response.output
        assert isinstance(message, OutputMessage)
        part = message.content[0]
        if missing := part.text.removeprefix(self._text):
            yield self._of_text("response.output_text.delta", delta=missing, logprobs=[])
        for i, annotation in enumerate(part.annotations):
            yield self._of_text("response.output_text.annotation.added", annotation_index=i, annotation=annotation)
        yield self._of_text("response.output_text.done", text=part.text, logprobs=[])
        yield self._of_text("response.content_part.done", part=part)
        yield self._event("response.output_item.done", output_index=SEARCH, item=search)
        yield self._event("response.output_item.done", output_index=MESSAGE, item=message)
        yield self._event(f"response.{response.status}", response=response)

    def error(self, error: Exception) -> Messages:
        failed = msgspec.structs.replace(
            self._draft.initial, status="failed", error=ResponseFailure(facts_of_error(error)[1].message)
        )
        yield self._event("response.failed", response=failed)

    def _of_text(self, name: str, **facts: Any) -> ServerSentEventMessage:
        return self._event(name, output_index=MESSAGE, item_id=self._draft.message_id, content_index=0, **facts)

    def _event(self, name: str, **facts: Any) -> ServerSentEventMessage:
        return event_message(name, {"type": name, "sequence_number": next(self._numbers), **facts})
