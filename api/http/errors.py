"""Errors as RFC 9457 problem details. The only module that maps errors to status codes."""

import logging
import math
from collections.abc import Callable
from http import HTTPStatus
from http.client import responses
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from litestar.types import ExceptionHandlersMap

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

ErrorHandler = Callable[[Request[Any, Any, Any], Any], Response[Any]]

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


def problem_of(error: Exception) -> Problem:
    """The problem that a client gets. The details of unexpected errors go to the log alone."""
    named = _named(error)
    if named is not error:
        log.error("a disk of the service: %s", error)
    return msgspec.structs.replace(_problem_of(named), request_id=request_id() or "")


def _named(error: Exception) -> Exception:
    """The error itself, or OutOfSpace or Unavailable if a full, read-only or failing disk caused it."""
    return trouble_of(error) or error


def _problem_of(error: Exception) -> Problem:
    if isinstance(error, RagKVError) and type(error) not in INTERNAL:
        status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
        return Problem(status.phrase, status, str(error))
    if isinstance(error, HTTPException):
        title = responses.get(error.status_code, "Client Closed Request")  # 499 is in no standard
        return Problem(title, error.status_code, error.detail)
    if isinstance(error, RecursionError):  # from reading a body: what is kept and sent has a limited depth
        return Problem(HTTPStatus.BAD_REQUEST.phrase, HTTPStatus.BAD_REQUEST, "the body is nested too deeply")
    log.error("unexpected error", exc_info=error)
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR.phrase, HTTPStatus.INTERNAL_SERVER_ERROR, "see the service's log")


def _respond(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
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


HANDLERS: ExceptionHandlersMap = {RagKVError: _respond, HTTPException: _respond, Exception: _respond}


def with_own(handlers: ExceptionHandlersMap, paths: tuple[str, ...], own: ErrorHandler) -> ExceptionHandlersMap:
    """The same handlers, with `own` in place of each for paths that begin with one of these, a slash put behind them.
    Those of a router do not see addresses that it lacks."""
    return {kind: _chosen(native, paths, own) for kind, native in handlers.items()}


def _chosen(native: ErrorHandler, paths: tuple[str, ...], own: ErrorHandler) -> ErrorHandler:
    def respond(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
        return (own if f"{request.scope['path']}/".startswith(paths) else native)(request, error)

    return respond
