"""Answers to OPTIONS: which methods a path has."""

from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.routes import HTTPRoute
from litestar.types import Message, Scope


async def name_all_methods(message: Message, scope: Scope) -> None:
    """A hook before a message is sent: `Allow` names every method of the path.

    Litestar 2 answers OPTIONS itself, with the methods of the one handler that it met first (litestar-org/litestar#4169).
    """
    if message["type"] == "http.response.start" and scope.get("method") == "OPTIONS" and "path_template" in scope:
        methods = _methods_of(scope["path_template"], Litestar.from_scope(scope))
        MutableScopeHeaders.from_message(message)["allow"] = ", ".join(sorted(methods))


def _methods_of(path: str, app: Litestar) -> set[str]:
    routes = [route for route in app.routes if isinstance(route, HTTPRoute) and route.path_format == path]
    return {str(method) for route in routes for method in route.methods}
