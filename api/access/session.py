"""The dashboard's cookie, and what keeps other sites' pages from using it."""

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
    """What the cookie says, if there is one."""
    return connection.cookies.get(COOKIE)


def session_cookie(connection: Connection, token: str) -> Cookie:
    """Lasts as long as the session. A connection that a proxy decrypts is known by the page's own address."""
    secure = "https" in (connection.url.scheme, urlsplit(connection.headers.get("origin", "")).scheme)
    return Cookie(COOKIE, path="/", value=token, max_age=LIFETIME_S, httponly=True, secure=secure, samesite=_SAME_SITE)


def ended_cookie() -> Cookie:
    """Takes the place of the session's cookie and is gone at once."""
    return Cookie(COOKIE, path="/", value="", max_age=0, httponly=True, samesite=_SAME_SITE)


def refuse_forged(connection: Connection, token: str) -> None:
    """What changes something must come from a page of this session. Raises Forbidden for what another site sent."""
    if not _changes_something(connection):
        return
    refuse_other_origins(connection)
    given = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token(token).encode()):
        raise Forbidden("missing or invalid X-CSRF-Token: reload the page")


def refuse_other_origins(connection: Connection) -> None:
    """Raises Forbidden for a change that a page of another origin asks for. Programs that are no browsers pass."""
    if not _changes_something(connection):
        return
    site = connection.headers.get("sec-fetch-site")
    origin = connection.headers.get("origin")
    own = site in ("same-origin", "none") if site else origin is None or _is_own(origin, connection)
    if not own:
        raise Forbidden("cross-site request: use the dashboard itself")


async def own_pages_only(connection: Connection, handler: BaseRouteHandler) -> None:
    """`refuse_other_origins` as a guard."""
    refuse_other_origins(connection)


def _changes_something(connection: Connection) -> bool:
    return connection.scope.get("method") not in SAFE_METHODS


def _is_own(origin: str, connection: Connection) -> bool:
    return origin.partition("://")[2] == connection.headers.get("host")
