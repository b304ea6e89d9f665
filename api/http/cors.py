"""Cross-origin resource sharing: pages of the origins in RAGKV_CORS_ORIGINS may call the API, not the dashboard."""

from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.enums import HttpMethod
from litestar.types import Message, Scope

STATE = "cross_origin"
"""Key of the CrossOrigin in the app's state."""
PATHS = ("/v1/", "/mcp/")
ANY = "*"
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
PREFLIGHT_S = 7200
"""How long a browser remembers what it may send; browsers have smaller limits."""


class CrossOrigin:
    """The origins whose pages may call the API. They send keys in headers: cookies, which a browser adds to the
    requests of any page, are never shared (no `Access-Control-Allow-Credentials`)."""

    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = origins

    def allows(self, origin: str | None) -> bool:
        return origin is not None and bool(self._origins & {origin, ANY})

    async def share(self, message: Message, scope: Scope) -> None:
        """Add the headers to every response under PATHS, errors and preflights included. A hook before a message is
        sent."""
        if not self._origins or message["type"] != "http.response.start" or not f"{scope['path']}/".startswith(PATHS):
            return
        request_headers, headers = Headers.from_scope(scope), MutableScopeHeaders.from_message(message)
        headers.extend_header_value("vary", "Origin")
        if not self.allows(origin := request_headers.get("origin")):
            return
        headers["access-control-allow-origin"] = str(origin)
        if scope.get("method") == HttpMethod.OPTIONS:
            headers["access-control-allow-methods"] = METHODS
            headers["access-control-allow-headers"] = request_headers.get("access-control-request-headers", "")
            headers["access-control-max-age"] = str(PREFLIGHT_S)
        else:
            headers["access-control-expose-headers"] = "*"
