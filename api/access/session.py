"""Requests of browsers: the dashboard's session cookie, protected against cross-site requests, and cross-origin
resource sharing (CORS): pages of the origins in RAGKV_CORS_ORIGINS may call the API, not the dashboard."""

import hmac
from typing import Any, Literal

from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie, Headers, MutableScopeHeaders
from litestar.enums import HttpMethod
from litestar.handlers import BaseRouteHandler
from litestar.types import Message, Scope

from ragkv.errors import Forbidden, Rejected
from ragkv.service.access.sessions import LIFETIME_S
from ragkv.urls import is_private_transport

Connection = ASGIConnection[Any, Any, Any, Any]

COOKIE = "ragkv_session"
HTTPS_COOKIE = f"__Host-{COOKIE}"
"""Browsers take a cookie of this name from this very host alone, over TLS: no other site of the domain can set it."""
CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SAME_SITE: Literal["strict"] = "strict"

CROSS_ORIGIN = "cross_origin"
"""Key of the CrossOrigin in the app's state."""
SHARED = ("/v1/", "/mcp/")
ANY = "*"
SHARED_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
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
        """Add the headers to every response under SHARED, errors and preflights included. A hook before a message is
        sent."""
        if not self._origins or message["type"] != "http.response.start" or not f"{scope['path']}/".startswith(SHARED):
            return
        request_headers, headers = Headers.from_scope(scope), MutableScopeHeaders.from_message(message)
        headers.extend_header_value("vary", "Origin")
        if not self.allows(origin := request_headers.get("origin")):
            return
        headers["access-control-allow-origin"] = str(origin)
        if scope.get("method") == HttpMethod.OPTIONS:
            headers["access-control-allow-methods"] = SHARED_METHODS
            headers["access-control-allow-headers"] = request_headers.get("access-control-request-headers", "")
            headers["access-control-max-age"] = str(PREFLIGHT_S)
        else:
            headers["access-control-expose-headers"] = "*"


def session_token(connection: Connection, public_url: str | None) -> str | None:
    """The cookie's value, if there is one. The name without a prefix counts only where https is not known to be
    used."""
    token = connection.cookies.get(HTTPS_COOKIE)
    return token if token or _over_https(connection, public_url) else connection.cookies.get(COOKIE)


def session_cookie(connection: Connection, token: str, public_url: str | None) -> Cookie:
    """The cookie of a key's session. Behind a proxy that ends TLS, the page's own origin tells https."""
    from_https = public_url is None and is_https(connection.headers.get("origin", ""))
    return cookie_of(token, LIFETIME_S, secure=from_https or _over_https(connection, public_url))


def refuse_plain_http(connection: Connection, public_url: str | None) -> None:
    """Refuse a login on a page whose browser would drop the session's cookie without a word. Raises Rejected for one
    over plain http, from another machine, where the dashboard's URL is https."""
    origin = connection.headers.get("origin", "")
    if origin.startswith("http:") and public_url and is_https(public_url) and not is_private_transport(origin):
        login_url = f"{public_url.rstrip('/')}/admin/login"
        raise Rejected(f"browsers keep no session of this service over plain http: log in at {login_url}")


def cookie_of(token: str, lifetime_s: int, *, secure: bool) -> Cookie:
    """The cookie of any session."""
    name = HTTPS_COOKIE if secure else COOKIE
    return Cookie(name, path="/", value=token, max_age=lifetime_s, httponly=True, secure=secure, samesite=_SAME_SITE)


def ended_cookies() -> list[Cookie]:
    """The cookies that remove the session's, whichever it is."""
    return [cookie_of("", 0, secure=secure) for secure in (True, False)]


def refuse_forged(connection: Connection, csrf: str) -> None:
    """CSRF protection: an unsafe request must come from a page with this session's token. Raises Forbidden."""
    if not _is_unsafe(connection):
        return
    refuse_other_origins(connection)
    token = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(token.encode(), csrf.encode()):
        raise Forbidden("missing or invalid X-CSRF-Token: reload the page")


def refuse_other_origins(connection: Connection, advice: str = "use the dashboard itself") -> None:
    """Protect against cross-site request forgery. Raises Forbidden for an unsafe request from a page of another origin.
    Programs that are not browsers pass."""
    if not _is_unsafe(connection):
        return
    site = connection.headers.get("sec-fetch-site")
    origin = connection.headers.get("origin")
    host = connection.headers.get("host")
    own = site in ("same-origin", "none") if site else origin is None or origin.partition("://")[2] == host
    if not own:
        raise Forbidden(f"cross-site request: {advice}")


async def own_pages_only(connection: Connection, handler: BaseRouteHandler) -> None:
    """`refuse_other_origins` as a guard."""
    refuse_other_origins(connection)


async def listed_pages_only(connection: Connection, handler: BaseRouteHandler) -> None:
    """`own_pages_only`, to which the pages of RAGKV_CORS_ORIGINS are added: for an API whose callers send a key."""
    cross_origin: CrossOrigin = connection.app.state[CROSS_ORIGIN]
    if not cross_origin.allows(connection.headers.get("origin")):
        refuse_other_origins(connection, "a page that may call this API has its origin in RAGKV_CORS_ORIGINS")


def _over_https(connection: Connection, public_url: str | None) -> bool:
    """Whether browsers are known to reach the dashboard over https."""
    return is_https(public_url) if public_url is not None else connection.scope["scheme"] == "https"


def is_https(origin: str) -> bool:
    """Whether an origin or URL is reached over TLS."""
    return origin.startswith("https://")


def _is_unsafe(connection: Connection) -> bool:
    return connection.scope.get("method") not in SAFE_METHODS
