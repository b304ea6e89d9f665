"""The dashboard's session cookie, protected against cross-site requests."""

import hmac
from typing import Any, Literal
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.handlers import BaseRouteHandler

from ragkv.access.sessions import LIFETIME_S, csrf_token
from ragkv.errors import Forbidden

Connection = ASGIConnection[Any, Any, Any, Any]

COOKIE = "ragkv_session"
CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SAME_SITE: Literal["strict"] = "strict"


def session_token(connection: Connection) -> str | None:
    """The cookie's value, if there is one."""
    return connection.cookies.get(COOKIE)


def session_cookie(connection: Connection, token: str) -> Cookie:
    """The cookie of a key's session. Behind a proxy that ends TLS, the page's own origin tells https."""
    secure = "https" in (connection.url.scheme, urlsplit(connection.headers.get("origin", "")).scheme)
    return cookie_of(token, LIFETIME_S, secure=secure)


def cookie_of(token: str, lifetime_s: int, *, secure: bool) -> Cookie:
    """The cookie of any session."""
    return Cookie(COOKIE, path="/", value=token, max_age=lifetime_s, httponly=True, secure=secure, samesite=_SAME_SITE)


def ended_cookie() -> Cookie:
    """The cookie that removes the session's."""
    return Cookie(COOKIE, path="/", value="", max_age=0, httponly=True, samesite=_SAME_SITE)


def refuse_forged(connection: Connection, token: str) -> None:
    """CSRF protection: an unsafe request must come from a page of this session. Raises Forbidden."""
    if not _is_unsafe(connection):
        return
    refuse_other_origins(connection)
    given = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token(token).encode()):
        raise Forbidden("missing or invalid X-CSRF-Token: reload the page")


def refuse_other_origins(connection: Connection) -> None:
    """Raises Forbidden for an unsafe request from a page of another origin. Programs that are not browsers pass."""
    if not _is_unsafe(connection):
        return
    site = connection.headers.get("sec-fetch-site")
    origin = connection.headers.get("origin")
    host = connection.headers.get("host")
    own = site in ("same-origin", "none") if site else origin is None or origin.partition("://")[2] == host
    if not own:
        raise Forbidden("cross-site request: use the dashboard itself")


async def own_pages_only(connection: Connection, handler: BaseRouteHandler) -> None:
    """`refuse_other_origins` as a guard."""
    refuse_other_origins(connection)


def _is_unsafe(connection: Connection) -> bool:
    return connection.scope.get("method") not in SAFE_METHODS
