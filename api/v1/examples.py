"""An example of every body, response and stream. `examples.json` has one of each type, as it is sent: members that have
their default are left out, and `$ref` stands for the example of another type, to which the members beside it are
added."""

from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from api.http.errors import Problem
from api.http.sse import EventStream, event_message
from api.v1.ask import AnswerView
from api.v1.documents import Replacement, Upload, Uploads
from api.v1.health import Readiness
from ragkv.answer.question import Delta
from ragkv.service.audit.log import AuditEvent
from ragkv.service.documents.watch import DocumentProgress
from ragkv.service.health.condition import AWAY
from ragkv.service.kv_admin.verify import Verified
from ragkv.service.questions.questions import LoggedQuestion, SetQuestion

T = TypeVar("T")

EXAMPLES: dict[str, Any] = msgspec.json.decode((Path(__file__).parent / "examples.json").read_bytes())
"""By the names of types."""
FORMS: dict[Any, object] = {
    Upload: {"file": "(the bytes of ada.md)", "collection": "papers", "metadata": '{"year": 1843}'},
    Uploads: {"files": ["(the bytes of ada.md)", "(the bytes of babbage.pdf)"], "collection": "papers"},
    Replacement: {"file": "(the bytes of ada.md)"},
}
"""By type: files are not JSON."""


def example_of(kind: Any, status: int = HTTPStatus.OK, detail: str = "") -> Any:
    """An example of a type as JSON, or None; of Problem the one with this status and detail."""
    if kind is Problem:
        problem = Problem(HTTPStatus(status).phrase, status, detail, request_id="4be0643f1d98573b97cdca98a65347dd")
        return msgspec.to_builtins(problem)
    if kind is Readiness and status == HTTPStatus.SERVICE_UNAVAILABLE:
        return msgspec.to_builtins(Readiness(ready=False, engine="ok", database="ok", redis=AWAY))
    if get_origin(kind) is list:
        example = example_of(get_args(kind)[0])
        return None if example is None else [example]
    if kind in FORMS:
        return FORMS[kind]
    return msgspec.to_builtins(value_of(kind)) if kind.__name__ in EXAMPLES else None


def value_of(kind: type[T]) -> T:
    """The example of a type as its value. Raises ValidationError for one that the type does not fit."""
    return msgspec.convert(_resolved(EXAMPLES[kind.__name__]), kind)


def _resolved(value: Any) -> Any:
    match value:
        case {"$ref": name, **members}:
            return _resolved(EXAMPLES[name]) | _resolved(members)
        case dict():
            return {name: _resolved(member) for name, member in value.items()}
        case list():
            return [_resolved(member) for member in value]
    return value


def _line(kind: type[msgspec.Struct]) -> str:
    return msgspec.json.encode(value_of(kind)).decode() + "\n"


_VERIFICATION = EventStream(
    {"progress": Verified, "done": Verified, "error": Problem}, (event_message("done", value_of(Verified)),)
)
_PROGRESS = (event_message("progress", value_of(DocumentProgress)),)

STREAMS = {
    "/v1/ask": EventStream(
        {"delta": Delta, "done": AnswerView, "error": Problem},
        (
            event_message("delta", Delta("Ada ")),
            event_message("delta", Delta("Lovelace.")),
            event_message("done", value_of(AnswerView)),
        ),
    ),
    "/v1/documents/{document_id}/events": EventStream(
        {"progress": DocumentProgress, "done": DocumentProgress, "deleted": dict[str, str], "error": Problem},
        _PROGRESS,
    ),
    "/v1/collections/{collection}/events": EventStream(
        {"progress": DocumentProgress, "done": dict[str, str], "deleted": dict[str, str], "error": Problem},
        _PROGRESS,
    ),
    "/v1/kv/verify": _VERIFICATION,
    "/v1/documents/{document_id}/kv/verify": _VERIFICATION,
    "/v1/collections/{collection}/kv/verify": _VERIFICATION,
}
"""By path."""

LINES = {
    "/v1/audit/export": _line(AuditEvent),
    "/v1/questions/export": _line(LoggedQuestion),
    "/v1/questions/evaluation": _line(SetQuestion),
}
"""A line of each response in JSON lines, by path."""
