"""Errors in OpenAI's format, under the paths of OpenAI's API."""

import re
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import NotFoundException
from litestar.openapi.datastructures import ResponseSpec

from api.http.errors import headers_of, problem_of, problems
from api.http.invalid_fields import invalid_fields, is_unknown, place_of
from api.http.observe import note_invalid
from ragkv.errors import NotFound, Rejected

_INSTEAD = "send the messages to /v1/chat/completions, or the conversation to /v1/responses"
NOT_OFFERED = {
    "/v1/assistants": f"assistants are not offered: {_INSTEAD}, with the tool file_search",
    "/v1/threads": f"threads are not offered: {_INSTEAD}, with the tool file_search",
    "/v1/conversations": f"conversations are not stored: {_INSTEAD}",
    "/v1/completions": "completions of a prompt are not offered: send messages to /v1/chat/completions",
    "/v1/uploads": "uploads in parts are not offered: send the whole file to /v1/files",
    "/v1/batches": "batches are not offered: send each request by itself, several at once",
} | {
    f"/v1/{name}": f"{name.replace('_', ' ')}: not offered, this service answers from documents"
    for name in ("audio", "containers", "evals", "fine_tuning", "images", "moderations", "realtime", "skills", "videos")
}
"""Paths of OpenAI's API that are not served, each with advice."""
ELSEWHERE = "this part of OpenAI's API is not offered: /schema lists what is"
NO_PREFIX = "OpenAI's API is under /v1 here: let the client's base_url end with /v1"
_OF_OPENAI = (
    "/v1/models", "/v1/chat", "/v1/responses", "/v1/files", "/v1/vector_stores", "/v1/embeddings", *NOT_OFFERED,
)  # fmt: skip
PATHS = (*_OF_OPENAI, *(path.removeprefix("/v1") for path in _OF_OPENAI))
"""Paths that OpenAI's clients call, served or not, and those that they call when their `base_url` lacks /v1."""

_NOT_EMPTY = re.compile(
    r"Expected `(?:object|array) (?:\| (?:object|array) )?\| null`, got |Expected `(?:array|object)` of length <= 0"
)
_CODES: Mapping[int, str | None] = {
    HTTPStatus.UNAUTHORIZED: "invalid_api_key",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded",
}
_TYPES: Mapping[int, str] = {
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}


class BadParam(Rejected):
    """An invalid or unsupported field; `param` is its path in the request."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class NoSuchModel(NotFound):
    """A model that is not served here."""

    param, code = "model", "model_not_found"


class ErrorFacts(msgspec.Struct, frozen=True):
    """The details of an error."""

    message: Annotated[str, "Explanation of the error and, where possible, how to solve it."]
    type: Annotated[str, "Type of the error."]
    param: Annotated[str | None, "Path of the invalid field in the request, if there is one."] = None
    code: Annotated[str | None, "Code of the error, if there is one."] = None


class ErrorBody(msgspec.Struct, frozen=True):
    """An error in OpenAI's format."""

    error: Annotated[ErrorFacts, "The error."]


def facts_of(error: Exception) -> tuple[int, ErrorFacts]:
    """Status and details of an error."""
    problem = problem_of(error)
    unprocessable = (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    status = HTTPStatus.BAD_REQUEST if problem.status in unprocessable else problem.status  # OpenAI's code for these
    facts = facts_of_status(status, problem.detail or problem.title)
    param, code = getattr(error, "param", None), getattr(error, "code", facts.code)
    return status, msgspec.structs.replace(facts, param=param, code=code)


def facts_of_status(status: int, message: str) -> ErrorFacts:
    """Details of an error of which only status and message are known."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _TYPES.get(status, "invalid_request_error")
    return ErrorFacts(message, kind, code=_CODES.get(status))


def errors(**also: str) -> dict[int, ResponseSpec]:
    """The documented error responses of an endpoint: the common ones, and others by their names in `HTTPStatus`."""
    documented = problems(BAD_REQUEST="Invalid or unsupported field: see `param`.", **also)
    return {
        status: replace(spec, data_container=ErrorBody, media_type=MediaType.JSON)
        for status, spec in documented.items()
    }


def error_response(request: Request[Any, Any, Any], error: Exception) -> Response[ErrorBody]:
    """An error in OpenAI's format, its invalid field noted for the log. A path that is not served gets advice."""
    status, facts = facts_of(error)
    if invalid := invalid_fields(error, request):
        place, message = place_of(invalid[0]), str(invalid[0]["message"])
        if is_unknown(invalid[0]):
            message = f"unknown field {place!r}: omit it"
        elif _NOT_EMPTY.match(message):
            message = f"{place!r} is not supported: omit it"
        elif place:
            message = f"{place!r}: {message}"
        facts = ErrorFacts(message, "invalid_request_error", place or None, "invalid_value")
    elif isinstance(error, NotFoundException):
        path = request.scope["path"]
        advice = next((text for prefix, text in NOT_OFFERED.items() if f"{path}/".startswith(f"{prefix}/")), ELSEWHERE)
        message = advice if path.startswith("/v1/") else NO_PREFIX
        facts = msgspec.structs.replace(facts, message=message, code="unknown_url")
    note_invalid(request, facts.param)
    headers = headers_of(error)
    if status == HTTPStatus.CONFLICT:  # clients would retry it by themselves
        headers["x-should-retry"] = "false"
    return Response(ErrorBody(facts), status_code=status, media_type="application/json", headers=headers)
