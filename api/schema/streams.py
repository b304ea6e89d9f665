"""Streams of server-sent events and of JSON Lines, by path: an example, and the type of each event if it has one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar.response import ServerSentEventMessage

from api.http.errors import Problem
from api.http.sse import event_message
from api.schema.examples import AUDIT_EVENT, DONE, LOGGED, PROGRESS, SET_QUESTION, VERIFIED
from api.schema.openai_examples import chat_events, response_events
from api.v1.ask import AnswerView
from ragkv.answer.question import Delta
from ragkv.service.documents.watch import DocumentProgress
from ragkv.service.kv_admin.verify import Verified

Json = dict[str, Any]

DATA = "Data of the event, encoded as JSON."
OTHER: Json = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": DATA}},
    "required": ["data"],
}
"""An event with data of no stated type."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a stream: the type of each, and some as an example. Streams in OpenAI's format have no types."""

    kinds: Mapping[str, Any]
    example: tuple[ServerSentEventMessage, ...]


_VERIFICATION = Stream({"progress": Verified, "done": Verified, "error": Problem}, (event_message("done", VERIFIED),))

STREAMS = {
    "/v1/ask": Stream(
        {"delta": Delta, "done": AnswerView, "error": Problem},
        (
            event_message("delta", Delta("Ada ")),
            event_message("delta", Delta("Lovelace.")),
            event_message("done", DONE),
        ),
    ),
    "/v1/documents/{document_id}/events": Stream(
        {"progress": DocumentProgress, "done": DocumentProgress, "deleted": dict[str, str], "error": Problem},
        (event_message("progress", PROGRESS),),
    ),
    "/v1/collections/{collection}/events": Stream(
        {"progress": DocumentProgress, "done": dict[str, str], "deleted": dict[str, str], "error": Problem},
        (event_message("progress", PROGRESS),),
    ),
    "/v1/kv/verify": _VERIFICATION,
    "/v1/documents/{document_id}/kv/verify": _VERIFICATION,
    "/v1/collections/{collection}/kv/verify": _VERIFICATION,
    "/v1/chat/completions": Stream({}, chat_events()),
    "/v1/responses": Stream({}, response_events()),
}

LINES = {
    "/v1/audit/export": msgspec.json.encode(AUDIT_EVENT).decode() + "\n",
    "/v1/questions/export": msgspec.json.encode(LOGGED).decode() + "\n",
    "/v1/questions/evaluation": msgspec.json.encode(SET_QUESTION).decode() + "\n",
}
"""A line of each response in JSON lines, by path."""


def media_of(stream: Stream, describe: Callable[[Any], Json]) -> Json:
    """A stream in the document: the schema of its events, and an example as sent."""
    data = {"type": "string", "contentMediaType": "application/json", "description": DATA}
    events = [
        {
            "type": "object",
            "properties": {
                "event": {"const": name, "description": "Name of the event."},
                "data": data | {"contentSchema": describe(kind)},
            },
            "required": ["event", "data"],
        }
        for name, kind in stream.kinds.items()
    ]
    schema = {"oneOf": events} if events else OTHER
    return {"schema": schema, "example": b"".join(message.encode() for message in stream.example).decode()}
