"""Errors as RFC 9457 problem details. The only module that maps errors to status codes."""

import logging
import math
from http import HTTPStatus
from http.client import responses
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec

from api.http.invalid_fields import InvalidField, invalid_fields, place_of
from api.http.observe import note_invalid
from ragkv.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    NotFound,
    OutOfSpace,
    QuotaExceeded,
    RagKVError,
    Rejected,
    Throttled,
    TooLarge,
    Unauthorised,
    Unavailable,
    Unsupported,
)
from ragkv.files_io import trouble_of
from ragkv.observe.logs import request_id

log = logging.getLogger(__name__)

STATUS: dict[type[RagKVError], HTTPStatus] = {
    Unauthorised: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Rejected: HTTPStatus.UNPROCESSABLE_ENTITY,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    QuotaExceeded: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Unsupported: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    Throttled: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    OutOfSpace: HTTPStatus.INSUFFICIENT_STORAGE,
}
INTERNAL = frozenset({Corrupt})
"""These never leave the service; one that does is a bug and shows as 500."""

MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem as defined by RFC 9457."""

    title: Annotated[str, "Name of the status code."]
    status: Annotated[int, "Status code."]
    detail: Annotated[str, "Explanation of the problem and, where possible, how to solve it."] = ""
    errors: Annotated[list[InvalidField], "Invalid parts of the request."] = []
    request_id: Annotated[str, "Id of the request in the service's log."] = ""


def problems(**also: str) -> dict[int, ResponseSpec]:
    """The documented problem responses of an endpoint: the common ones, and others by their names in `HTTPStatus`."""
    documented = _EVERYWHERE | {HTTPStatus[name]: description for name, description in also.items()}
    return {
        int(status): ResponseSpec(Problem, generate_examples=False, media_type=MEDIA_TYPE, description=description)
        for status, description in sorted(documented.items())
    }


def json_problems(**also: str) -> dict[int, ResponseSpec]:
    """`problems` of an endpoint that reads JSON."""
    return problems(UNSUPPORTED_MEDIA_TYPE="`Content-Type` is not JSON, or `Content-Encoding` not gzip.", **also)


def form_problems(**also: str) -> dict[int, ResponseSpec]:
    """`problems` of an endpoint that reads a multipart form."""
    return problems(
        UNSUPPORTED_MEDIA_TYPE="`Content-Type` is not `multipart/form-data`, or `Content-Encoding` not gzip.", **also
    )


_EVERYWHERE = {
    HTTPStatus.BAD_REQUEST: "Malformed request: see `errors`.",
    HTTPStatus.UNAUTHORIZED: "The API key is missing, invalid, expired or revoked.",
    HTTPStatus.FORBIDDEN: "The API key lacks the required scope.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests: wait for the number of seconds in `Retry-After`.",
    HTTPStatus.SERVICE_UNAVAILABLE: "A component is unavailable or the service is shutting down: try again later.",
}


_OF_ROUTES: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "there is no such path: /schema lists those of the API, and the dashboard begins at /admin",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not have this method: the header `Allow` lists those that it has",
}
"""In place of Litestar's words, which only repeat the title."""


def problem_of(error: Exception) -> Problem:
    """The problem that a client gets. The details of unexpected errors go to the log alone."""
    named = _named(error)
    if named is not error:
        log.error("a disk of the service: %s", error)
    status: int = HTTPStatus.INTERNAL_SERVER_ERROR
    detail = "see the service's log"
    if isinstance(named, RagKVError) and type(named) not in INTERNAL:
        status, detail = next(STATUS[kind] for kind in type(named).__mro__ if kind in STATUS), str(named)
    elif isinstance(named, HTTPException):
        status = named.status_code
        detail = _OF_ROUTES.get(status, named.detail) if named.detail == responses.get(status) else named.detail
    elif isinstance(named, RecursionError):  # from reading a body: what is kept and sent has a limited depth
        status, detail = HTTPStatus.BAD_REQUEST, "the body is nested too deeply"
    else:
        log.error("unexpected error", exc_info=named)
    title = responses.get(status, "Client Closed Request")  # 499 is in no standard
    return Problem(title, status, detail, request_id=request_id() or "")


def _named(error: Exception) -> Exception:
    """The error itself, or OutOfSpace or Unavailable if a full, read-only or failing disk caused it."""
    return trouble_of(error) or error


def problem_response(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """An error as problem details, its invalid field noted for the log."""
    problem = msgspec.structs.replace(problem_of(error), errors=invalid_fields(error, request))
    note_invalid(request, place_of(problem.errors[0]) if problem.errors else None)
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers_of(error))


def headers_of(error: Exception) -> dict[str, str]:
    named = _named(error)
    match named:
        case Unauthorised():
            return {"WWW-Authenticate": "Bearer"}
        case Throttled() | Unavailable():
            return {"Retry-After": str(math.ceil(named.retry_after_s))}
        case HTTPException():
            return dict(named.headers or {})
    return {}
