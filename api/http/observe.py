"""Observation of every HTTP request: its id, trace span, access log line and metrics."""

import logging
import re
import time
from contextlib import AbstractContextManager, ExitStack
from http import HTTPStatus
from typing import Any

from litestar.connection import ASGIConnection
from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPResponseStartEvent, HTTPScope, Message, Receive, Scope, Send

from api.http.draining import Draining
from ragkv.observe import logs, metrics, traces

log = logging.getLogger("ragkv.access")

HEADER = "X-Request-ID"
UNROUTED = "(none)"
"""The route of requests that match none."""
PROBES = frozenset({"/health", "/healthz", "/readyz", "/metrics"})
"""Paths that machines poll: logged at the level debug, and not traced."""
CLIENT_GONE = 499
MADE = "ragkv_made"
HELD = "ragkv_held"
"""Key of the ExitStack in a request's scope. `Observing` makes and closes it."""
INVALID = "ragkv_invalid_field"
_NAME = re.compile(r"[\w.\[\]-]{1,80}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{16}|[0-9a-f]{32}")
"""An id of a key or of any other thing. Other texts may be names, and stay out of the log."""


class Observing:
    """Wraps the whole app, so that it also sees requests without a route, and failures before a handler runs."""

    def __init__(self, app: ASGIApp, draining: Draining) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        record = RequestRecord(scope)
        bound = logs.bound(**{logs.REQUEST_ID: record.request_id})
        with bound, self._draining.counted(), ExitStack() as held:
            scope[HELD] = held  # type: ignore[literal-required]
            try:
                await self._answer(record, receive, send)
            finally:
                record.finish()

    async def _answer(self, record: "RequestRecord", receive: Receive, send: Send) -> None:
        if record.is_probe:
            await self._app(record.scope, receive, record.watching(send))
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in record.scope["headers"]}
        with traces.continued(headers, record.method, record.attributes(), traces.SpanKind.SERVER) as span:
            await self._app(record.scope, receive, record.watching(send))
            span.update_name(f"{record.method} {record.route}")
            span.set_attributes({"http.route": record.route, "http.response.status_code": record.status})
            if record.status >= 500:  # noqa: PLR2004 - the server's own errors
                traces.failed(span, str(record.status))


class RequestRecord:
    """One request and its outcome. `status` is 499, client closed request, until a response starts."""

    def __init__(self, scope: HTTPScope) -> None:
        self.scope = scope
        header = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"x-request-id"), None)
        self.request_id = logs.accepted_id(header)
        self.status = CLIENT_GONE
        self._made: list[str] = []
        self._began = time.perf_counter()

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def route(self) -> str:
        """The path's template: paths contain ids."""
        return str(self.scope.get("path_template") or UNROUTED)

    @property
    def is_probe(self) -> bool:
        return self.scope["path"] in PROBES

    def attributes(self) -> traces.Attributes:
        """Attributes of the request, named by OpenTelemetry's conventions, without the query."""
        host, port = self.scope.get("server") or ("", 0)
        return {
            "http.request.method": self.method,
            "url.path": str(self.scope["path"]),
            "url.scheme": str(self.scope["scheme"]),
            "server.address": host,
            "server.port": port or 0,
            f"ragkv.{logs.REQUEST_ID}": self.request_id,
        }

    def watching(self, send: Send) -> Send:
        """`send`, noting the status and adding the request's id to the response's headers."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = int(message["status"])  # as text, an HTTPStatus is its name
                self._made = made_by(self.scope, message)
                MutableScopeHeaders.from_message(message)[HEADER] = self.request_id
            await send(message)

        return watched

    def finish(self) -> None:
        seconds = time.perf_counter() - self._began
        metrics.requested(self.method, self.route, self.status, seconds)
        level = logging.DEBUG if self.is_probe else logging.INFO
        caller = self.scope.get("user")
        facts = {
            "method": self.method,
            "route": self.route,
            "status": self.status,
            "ms": round(seconds * 1e3, 1),
            "tenant_id": getattr(caller, "tenant_id", None),
            "key_id": getattr(caller, "key_id", None),
            "person": getattr(getattr(caller, "person", None), "subject", None),
            "client": (self.scope.get("client") or ("",))[0],
            "invalid_field": self.scope.get(INVALID),
            "ids": [text for text in dict.fromkeys((*named_in(self.scope), *self._made)) if _ID.fullmatch(text)],
        }
        log.log(level, "request", extra=facts)


def note_made(connection: ASGIConnection[Any, Any, Any, Any], thing_id: str) -> None:
    """Note the id of a thing that a request made, for the logs, if its response has no `Location`."""
    connection.scope.setdefault(MADE, []).append(thing_id)  # type: ignore[misc]


def note_invalid(connection: ASGIConnection[Any, Any, Any, Any], place: str | None) -> None:
    """Note the place of the field for which a request is refused, for the log. Its name may be the client's own."""
    if place:
        connection.scope[INVALID] = place if _NAME.fullmatch(place) else "(not a name)"  # type: ignore[literal-required]


def hold(connection: ASGIConnection[Any, Any, Any, Any], context: AbstractContextManager[object]) -> None:
    """Enter a context now and leave it when the request's response has ended, for whatever reason."""
    held: ExitStack = connection.scope[HELD]  # type: ignore[literal-required]
    held.enter_context(context)


def made_by(scope: Scope, message: HTTPResponseStartEvent) -> list[str]:
    """The ids of the things that a request made. `message` starts its response."""
    ids: list[str] = [*scope.get(MADE, [])]  # type: ignore[misc]
    if message["status"] < HTTPStatus.MULTIPLE_CHOICES:  # a redirect leads to another page
        ids.append(str(MutableScopeHeaders.from_message(message).get("location", "")).rpartition("/")[2])
    return [text for text in dict.fromkeys(ids) if _ID.fullmatch(text)]


def named_in(scope: Scope) -> list[str]:
    """Ids in a request's path, in its order."""
    return [str(value) for value in (scope.get("path_params") or {}).values()]
