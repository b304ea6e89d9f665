"""Answers as the events of a streamed response, numbered in order."""

from itertools import count
from typing import Any

import msgspec
from litestar.response import ServerSentEventMessage

from api.http.sse import event_message
from api.openai.errors import facts_of
from api.openai.response_views import (
    FileSearchCall,
    OutputMessage,
    OutputText,
    ResponseDraft,
    ResponseFailure,
    response_of,
)
from api.openai.streaming import Messages, Sources
from ragkv.answer.question import Answer

SEARCH, MESSAGE = 0, 1
"""Indices of the output."""


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
            self._draft.initial, status="failed", error=ResponseFailure(facts_of(error)[1].message)
        )
        yield self._event("response.failed", response=failed)

    def _of_text(self, name: str, **facts: Any) -> ServerSentEventMessage:
        return self._event(name, output_index=MESSAGE, item_id=self._draft.message_id, content_index=0, **facts)

    def _event(self, name: str, **facts: Any) -> ServerSentEventMessage:
        return event_message(name, {"type": name, "sequence_number": next(self._numbers), **facts})
