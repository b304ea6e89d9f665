"""Responses to OPTIONS: the methods of a path."""

from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.routes import HTTPRoute
from litestar.types import Message, Scope


async def name_all_methods(message: Message, scope: Scope) -> None:
    """A hook before a message is sent: `Allow` names every method of the path.

    Litestar 2 answers OPTIONS itself, with the methods of the one handler that it met first
    (litestar-org/litestar#4169).
    """
    if message["type"] == "http.response.start" and scope.get("method") == "OPTIONS" and "path_template" in scope:
        routes = (route for route in Litestar.from_scope(scope).routes if isinstance(route, HTTPRoute))
        methods = {
            str(method) for route in routes if route.path_format == scope["path_template"] for method in route.methods
        }
        MutableScopeHeaders.from_message(message)["allow"] = ", ".join(sorted(methods))
