"""Log out: here and, for a person who signed in, at the provider too."""

import asyncio
from http import HTTPStatus

import msgspec
from litestar import Response, post
from litestar.di import NamedDependency

from api.access.auditing import note_change
from api.access.session import ended_cookies, session_token
from api.admin.errors import LOGIN
from api.admin.shell import AdminRequest
from api.admin.sign_in import origin_of
from ragkv.errors import Rejected, Unavailable
from ragkv.service.access.provider import Provider
from ragkv.service.access.sessions import Holder, Sessions, SignedIn
from ragkv.service.access.sign_in import SignIn
from ragkv.settings import Settings


class LoggedOut(msgspec.Struct, frozen=True):
    """The page to go to after the logout."""

    then: str


@post("/logout", status_code=HTTPStatus.OK)
async def logout(
    request: AdminRequest,
    settings: NamedDependency[Settings],
    sign_in: NamedDependency[SignIn | None],
    sessions: NamedDependency[Sessions],
    provider: NamedDependency[Provider | None],
) -> Response[LoggedOut]:
    """End the session here and in the browser."""
    holder = await asyncio.to_thread(_end, session_token(request, settings.public_url), sessions)
    if holder is not None:
        note_change(request, "Log out")
    return Response(LoggedOut(await _after(holder, request, sign_in, provider)), cookies=ended_cookies())


def _end(token: str | None, sessions: Sessions) -> Holder | None:
    if token is None:
        return None
    holder = sessions.holder(token)
    sessions.end(token)
    return holder


async def _after(
    holder: Holder | None, request: AdminRequest, sign_in: SignIn | None, provider: "Provider | None"
) -> str:
    """The provider's place to sign out, for a person; the login where there is none, or it does not answer."""
    if not isinstance(holder, SignedIn) or provider is None or sign_in is None:
        return LOGIN
    try:
        back_to = origin_of(request, sign_in) + LOGIN
        return await provider.sign_out_url(holder.id_token, back_to) or LOGIN
    except (Unavailable, Rejected):
        return LOGIN
