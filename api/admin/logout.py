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
from ragkv.access.sessions import Holder, SignedIn
from ragkv.errors import Rejected, Unavailable
from ragkv.parts import Parts


class LoggedOut(msgspec.Struct, frozen=True):
    """The page to go to after the logout."""

    then: str


@post("/logout", status_code=HTTPStatus.OK)
async def logout(request: AdminRequest, parts: NamedDependency[Parts]) -> Response[LoggedOut]:
    """End the session here and in the browser."""
    holder = await asyncio.to_thread(_end, session_token(request, parts.settings.public_url), parts)
    if holder is not None:
        note_change(request, "Log out")
    return Response(LoggedOut(await _after(holder, request, parts)), cookies=ended_cookies())


def _end(token: str | None, parts: Parts) -> Holder | None:
    if token is None:
        return None
    holder = parts.sessions.holder(token)
    parts.sessions.end(token)
    return holder


async def _after(holder: Holder | None, request: AdminRequest, parts: Parts) -> str:
    """The provider's place to sign out, for a person; the login where there is none, or it does not answer."""
    if not isinstance(holder, SignedIn) or parts.provider is None or parts.sign_in is None:
        return LOGIN
    try:
        back_to = origin_of(request, parts.sign_in) + LOGIN
        return await parts.provider.sign_out_url(holder.id_token, back_to) or LOGIN
    except (Unavailable, Rejected):
        return LOGIN
