"""Authentication by API key or session, which yields a `Caller`; guards check its scopes."""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.enums import HttpMethod
from litestar.handlers import BaseRouteHandler
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult, DefineMiddleware

from api.access.admission import Admissions
from api.access.session import Connection
from ragkv.errors import Forbidden
from ragkv.service.base.caller import Caller, KeyScope

PUBLIC = "public"
"""Option of handlers that need no key."""
SCHEMA = "^/schema"


class Authentication(AbstractAuthenticationMiddleware):
    """Sets the connection's user and `auth` as `Admissions.admit` says, or raises what it raises."""

    def __init__(self, app: Any, admissions: Admissions, **options: Any) -> None:
        super().__init__(app, **options)
        self._admissions = admissions

    async def authenticate_request(self, connection: Connection) -> AuthenticationResult:
        return await self._admissions.admit(connection)


class Requires:
    """A guard: the caller's key must have this scope. OPTIONS, the methods of a path, is public, as is /schema."""

    def __init__(self, scope: KeyScope) -> None:
        self.scope = scope

    async def __call__(self, connection: Connection, handler: BaseRouteHandler) -> None:
        if connection.scope.get("method") == HttpMethod.OPTIONS:
            return
        caller: Caller = connection.user
        if not caller.may(self.scope):
            raise Forbidden(
                f"this needs an API key with the scope {self.scope}: `ragkv keys create --name NAME --scope {self.scope}`"
            )


scraping, reading, writing, administering = Requires("metrics"), Requires("read"), Requires("write"), Requires("admin")


def authentication(admissions: Admissions) -> DefineMiddleware:
    return DefineMiddleware(Authentication, admissions=admissions, exclude=SCHEMA, exclude_from_auth_key=PUBLIC)


def caller_of(request: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """The dependency `caller`."""
    caller: Caller = request.user
    return caller
