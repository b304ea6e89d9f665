"""What comes over streams of server-sent events: for each path the events by name, with the type of their data."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api.ask import AnswerView
from api.errors import Problem
from api.schema.examples import DONE, PROGRESS, VERIFIED
from ragkv.answer.ask import Delta
from ragkv.library.watch import DocumentProgress
from ragkv.upkeep.verify import Verified

Json = dict[str, Any]

OTHER: Json = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
"""An event of which no more is said."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Its events: the type of each, and some as an example."""

    kinds: Mapping[str, Any]
    example: tuple[tuple[str, object], ...]


_VERIFICATION = Stream({"progress": Verified, "done": Verified, "error": Problem}, (("done", VERIFIED),))

STREAMS = {
    "/v1/ask": Stream(
        {"delta": Delta, "done": AnswerView, "error": Problem},
        (("delta", Delta("Ada ")), ("delta", Delta("Lovelace.")), ("done", DONE)),
    ),
    "/v1/documents/{document_id}/events": Stream(
        {"progress": DocumentProgress, "done": DocumentProgress, "deleted": dict[str, str]},
        (("progress", PROGRESS),),
    ),
    "/v1/collections/{collection}/events": Stream(
        {"progress": DocumentProgress, "done": dict[str, str]}, (("progress", PROGRESS),)
    ),
    "/v1/kv/verify": _VERIFICATION,
    "/v1/documents/{document_id}/kv/verify": _VERIFICATION,
    "/v1/collections/{collection}/kv/verify": _VERIFICATION,
}


def media_of(stream: Stream, describe: Callable[[Any], Json]) -> Json:
    """A stream in the document: what each event is, and how some look on the line."""
    return {"schema": {"oneOf": list(_events(stream, describe))}, "example": _written(stream)}


def _events(stream: Stream, describe: Callable[[Any], Json]) -> Iterator[Json]:
    for name, kind in stream.kinds.items():
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": describe(kind)}
        yield {
            "type": "object",
            "properties": {"event": {"const": name}, "data": data},
            "required": ["event", "data"],
        }


def _written(stream: Stream) -> str:
    lines = (f"event: {name}\ndata: {msgspec.json.encode(value).decode()}\n\n" for name, value in stream.example)
    return "".join(lines)
