"""Who asks, and whether they may: an API key or a session becomes a `Caller`; guards on the handlers look at its scopes."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.enums import HttpMethod
from litestar.handlers import BaseRouteHandler
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult, DefineMiddleware

from api.session import refuse_forged, session_token
from ragkv.access.caller import Caller, KeyScope
from ragkv.access.gate import Gate
from ragkv.access.sessions import Sessions, csrf_token
from ragkv.errors import Forbidden, Unauthorised
from ragkv.settings import is_loopback

Connection = ASGIConnection[Any, Any, Any, Any]

PUBLIC = "public"
"""A handler with this option is for everybody: nobody is asked for a key."""
SCHEMA = "^/schema"


class Authentication(AbstractAuthenticationMiddleware):
    """Sets the connection's user to its Caller, and `auth` to its session's CSRF token if it has a session.

    A key in a header goes before the session's cookie. Raises Unauthorised, Forbidden or Throttled.
    """

    def __init__(self, app: Any, gate: Gate, sessions: Sessions, **options: Any) -> None:
        super().__init__(app, **options)
        self._gate = gate
        self._sessions = sessions

    async def authenticate_request(self, connection: Connection) -> AuthenticationResult:
        key, token = _key_of(connection), session_token(connection)
        if key is None and token and (key_id := await asyncio.to_thread(self._sessions.key_id, token)):
            refuse_forged(connection, token)
            caller = await asyncio.to_thread(self._gate.readmit, key_id)
            return AuthenticationResult(user=caller, auth=csrf_token(token))
        caller = await asyncio.to_thread(self._gate.admit, key)
        if caller.key_id is None:
            _refuse_other_sites(connection)
        return AuthenticationResult(user=caller, auth=None)


class Requires:
    """A guard: the caller's key must have this scope. Which methods a path has (OPTIONS) is for everybody, as in /schema."""

    def __init__(self, scope: KeyScope) -> None:
        self.scope = scope

    async def __call__(self, connection: Connection, handler: BaseRouteHandler) -> None:
        if connection.scope.get("method") == HttpMethod.OPTIONS:
            return
        caller: Caller = connection.user
        if not caller.may(self.scope):
            raise Forbidden(
                f"this needs an API key with the scope {self.scope}: `ragkv keys create --scope {self.scope}`"
            )


reading, writing, administering = Requires("read"), Requires("write"), Requires("admin")


def authentication(gate: Gate, sessions: Sessions) -> DefineMiddleware:
    return DefineMiddleware(Authentication, gate=gate, sessions=sessions, exclude=SCHEMA, exclude_from_auth_key=PUBLIC)


def caller_of(request: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """The dependency `caller`."""
    caller: Caller = request.user
    return caller


def _key_of(connection: Connection) -> str | None:
    if key := connection.headers.get("x-api-key"):
        return key
    header = connection.headers.get("authorization")
    if header is None:
        return None
    kind, _, key = header.partition(" ")
    if kind.lower() != "bearer":
        raise Unauthorised("send the API key as `Authorization: Bearer rk_...`")
    return key.strip()


def _refuse_other_sites(connection: Connection) -> None:
    """Without keys the service is this machine's own: a web page from elsewhere, open in its browser, may not use it."""
    named = (f"//{connection.headers.get('host', '')}", connection.headers.get("origin"))
    if not all(url is None or is_loopback(_hostname(url)) for url in named):
        raise Forbidden("without API keys only this machine may ask, as 127.0.0.1 or localhost: `ragkv keys create`")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
