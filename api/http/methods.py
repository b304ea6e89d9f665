"""Methods of a path: decorators of documented handlers; HEAD beside every GET, and all of them in `Allow`."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any, Final, TypedDict, Unpack

import litestar
from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.enums import HttpMethod, ScopeType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Operation
from litestar.routes import HTTPRoute
from litestar.types import AnyCallable, ASGIApp, Dependencies, Guard, Message, Receive, Scope, Send

GET: Final = "GET"
HEAD: Final = "HEAD"


class Options(TypedDict, total=False):
    """Options of Litestar's decorators."""

    dependencies: Dependencies
    description: str
    include_in_schema: bool
    media_type: str
    operation_class: type[Operation]
    opt: Mapping[str, Any]
    request_max_body_size: int
    response_description: str
    status_code: int
    tags: list[str]


class Endpoint:
    """A decorator of handlers of one method, one of Litestar's. Those that are not async run in threads: they may
    block."""

    def __init__(self, method: Callable[..., HTTPRouteHandler]) -> None:
        self._method = method

    def __call__(
        self,
        path: str,
        summary: str,
        responses: Mapping[int, ResponseSpec] | None = None,
        *guards: Guard,
        **options: Unpack[Options],
    ) -> Callable[[AnyCallable], HTTPRouteHandler]:
        def register(function: AnyCallable) -> HTTPRouteHandler:
            in_thread = None if iscoroutinefunction(function) else True
            facts = {"summary": summary, "responses": responses, "guards": guards, "sync_to_thread": in_thread}
            return self._method(path, **facts, **options)(function)

        return register


get, post, put = Endpoint(litestar.get), Endpoint(litestar.post), Endpoint(litestar.put)
patch, delete = Endpoint(litestar.patch), Endpoint(litestar.delete)


class HeadLikeGet:
    """Wraps the app: HEAD gets the status and headers of GET. The app sees a GET whose client leaves when the response
    has started, which ends streams."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["method"] != HEAD:
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["method"] = HEAD  # for the server, which counts the bytes of a body otherwise
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        scope["method"] = GET
        try:
            await self._app(scope, receive, without_body)
        finally:
            scope["method"] = HEAD


async def name_all_methods(message: Message, scope: Scope) -> None:
    """A hook before a message is sent: `Allow` names every method of the path.

    Litestar 2 answers OPTIONS itself, with the methods of the one handler that it met first
    (litestar-org/litestar#4169).
    """
    if message["type"] != "http.response.start":
        return
    headers = MutableScopeHeaders.from_message(message)
    if scope.get("method") == HttpMethod.OPTIONS and "path_template" in scope:
        routes = (route for route in Litestar.from_scope(scope).routes if isinstance(route, HTTPRoute))
        methods = {
            str(method) for route in routes if route.path_format == scope["path_template"] for method in route.methods
        }
        headers["allow"] = ", ".join(sorted(methods)).replace(GET, f"{GET}, {HEAD}")
    elif message["status"] == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["allow"] = headers.get("allow", "").replace(GET, f"{GET}, {HEAD}")
