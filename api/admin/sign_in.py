"""Sign in at the OpenID Connect provider, choose the tenant to work in, and log out: here and at the provider too."""

import asyncio
import base64
import hmac
import logging
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import Redirect

from api.access.auditing import note_change
from api.access.auth import PUBLIC
from api.access.session import cookie_of, ended_cookies, is_https, session_token
from api.admin.login import HOME, address_of, count_failure, inside, login_form
from api.admin.responses import LOGIN
from api.admin.shell import AdminRequest, page
from ragkv.errors import Forbidden, NotFound, RagKVError, Rejected, Throttled, Unauthorised, Unavailable
from ragkv.service.access.gate import Gate
from ragkv.service.access.provider import Challenge, Identity, Provider, printable
from ragkv.service.access.rate import RateLimit
from ragkv.service.access.sessions import Sessions, SignedIn
from ragkv.service.access.sign_in import Rights, SignIn
from ragkv.service.base.caller import Caller
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from ragkv.urls import is_private_transport

BEGIN = "/admin/sign-in"
CALLBACK = f"{BEGIN}/callback"
AT_PROVIDER_S = 600
"""A person may take this long to sign in at the provider."""
COOKIE_CHARS = 3_000
"""Journeys of a cookie, which has room for the newest in any case: proxies take few KiB of headers."""
FAILURES = (Unauthorised, Forbidden, Throttled, Unavailable, Rejected)

log = logging.getLogger(__name__)


class Journey(msgspec.Struct, frozen=True):
    """State that the browser keeps while its person is at the provider: the challenge, and the page to go to
    afterwards. Tabs that sign in at once have one each, in one cookie."""

    challenge: Challenge
    next: str


class TenantChoice(msgspec.Struct, frozen=True):
    """The id of the tenant to work in."""

    tenant: str


@get(BEGIN, opt={PUBLIC: True}, include_in_schema=False)
async def begin_sign_in(request: Request[Any, Any, Any], parts: NamedDependency[Parts]) -> Response[Any]:
    """Send the person to the provider."""
    sign_in, provider, _ = _configured(parts)
    journey = Journey(Challenge.new(), inside(request.query_params.get("next", HOME)))
    try:
        origin = origin_of(request, sign_in)
        choose = "choose" in request.query_params
        url = await provider.sign_in_url(journey.challenge, origin + CALLBACK, choose=choose)
    except FAILURES as error:
        return login_form(request, parts.sign_in, journey.next, error)
    response = Redirect(url)
    response.set_cookie(_journey_cookie(origin, [*_journeys(request, origin), journey]))
    return response


@get(CALLBACK, opt={PUBLIC: True}, include_in_schema=False)
async def finish_sign_in(request: Request[Any, Any, Any], parts: NamedDependency[Parts]) -> Response[Any]:
    """Start a session for the person whom the provider sends back."""
    sign_in, _, _ = _configured(parts)
    journey: Journey | None = None
    try:
        origin = origin_of(request, sign_in)
        state = request.query_params.get("state", "").encode()
        journeys = _journeys(request, origin)
        journey = next((j for j in journeys if hmac.compare_digest(state, j.challenge.state.encode())), None)
        identity = await _identified(request, journey, origin, parts)
        old_token = session_token(request, sign_in.public_url)
        token, caller = await asyncio.to_thread(_begin_session, identity, old_token, parts)
        note_change(request, "Sign in", caller)
        # A page of ours leads on: after a redirect from the provider's site the browser would not send the new cookie,
        # which is for requests from our own pages alone.
        response = page(request, "onward.html", next=inside(journey.next if journey else HOME))
        response.set_cookie(cookie_of(token, sign_in.session_s, secure=is_https(origin)))
        response.set_cookie(_journey_cookie(origin, [other for other in journeys if other is not journey]))
    except FAILURES as error:
        shown = await asyncio.to_thread(_noted, error, address_of(request), parts.login_limit)
        response = login_form(request, parts.sign_in, journey.next if journey else HOME, shown)
    return response


@post("/sign-in/tenant", status_code=HTTPStatus.NO_CONTENT, sync_to_thread=True)
def switch_tenant(
    data: JSONBody[TenantChoice],
    request: AdminRequest,
    settings: NamedDependency[Settings],
    sessions: NamedDependency[Sessions],
    gate: NamedDependency[Gate],
) -> None:
    """Work in another of the tenants that the person's groups give."""
    token, caller = session_token(request, settings.public_url), request.user
    holder = sessions.holder(token) if token else None
    if token is None or not isinstance(holder, SignedIn):
        raise Rejected("only people who signed in have several tenants; an API key has one")
    if data.tenant not in {tenant.id for tenant in caller.tenants}:
        raise NotFound("you have no tenant with this id")
    moved = msgspec.structs.replace(holder, tenant_id=data.tenant)
    sessions.change(token, moved)
    note_change(request, "Switch to this tenant", gate.recall(moved))


def origin_of(request: Request[Any, Any, Any], sign_in: SignIn) -> str:
    """The dashboard's origin, as the provider is told it. Raises Rejected where the settings do not say and the request
    cannot be believed."""
    if sign_in.public_url is not None:
        return sign_in.public_url
    scheme = request.scope["scheme"]
    origin = f"{scheme}://{request.headers.get('host', '')}"
    if not is_private_transport(origin) or scheme != "http":
        raise Rejected("sign-in from other machines needs RAGKV_PUBLIC_URL: the dashboard's origin, as browsers see it")
    return origin


def _configured(parts: Parts) -> tuple[SignIn, Provider, Rights]:
    sign_in, provider, rights = parts.sign_in, parts.provider, parts.rights
    if sign_in is None or provider is None or rights is None:
        raise NotFound("this service has no sign-in provider: log in with an API key")
    return sign_in, provider, rights


async def _identified(request: Request[Any, Any, Any], journey: Journey | None, origin: str, parts: Parts) -> Identity:
    """The person whom the provider sends back to the browser that it was asked from. Failures are counted once the
    provider has refused: a valid code passes whatever others sent from the same address."""
    sign_in, provider, _ = _configured(parts)
    query = request.query_params
    if journey is None:
        raise Unauthorised(
            f"sign-in took longer than {AT_PROVIDER_S // 60} minutes, or began in another browser or not at {origin}: "
            "sign in again"
        )
    if query.get("iss", sign_in.issuer).rstrip("/") != sign_in.issuer.rstrip("/"):
        raise Unauthorised("sign-in failed: the response came from another provider")
    if "error" in query:
        reason = printable(f"{query['error']} {query.get('error_description', '')}")
        raise Unauthorised(f"the provider did not sign you in: {reason}")
    code = query.get("code", "")
    return await provider.identify(code, journey.challenge, origin + CALLBACK, address_of(request))


def _begin_session(identity: Identity, old_token: str | None, parts: Parts) -> tuple[str, Caller]:
    """A new session and its caller; the one before is ended. Raises Forbidden for a person without rights here."""
    sign_in, _, rights = _configured(parts)
    groups = rights.groups_that_count(identity.groups)
    try:
        tenant, *_ = rights.tenants_of(groups)
    except Forbidden as error:
        named = printable(", ".join(identity.groups[:10])) or f"none, in the claim {sign_in.groups_claim}"
        raise Forbidden(f"{identity.person}: {error}. The provider named these groups: {named}") from None
    holder = SignedIn(person=identity.person, groups=groups, tenant_id=tenant.id, id_token=identity.id_token)
    if old_token:
        parts.sessions.end(old_token)
    return parts.sessions.begin(holder, sign_in.session_s), rights.caller_of(holder)


def _noted(error: RagKVError, address: str, login_limit: RateLimit) -> RagKVError:
    """The error to show: a Throttled in place of one failure too many."""
    log.warning("a sign-in from %s failed: %s", address, error)
    if isinstance(error, Unauthorised | Forbidden):
        try:
            count_failure(address, login_limit)
        except (Throttled, Unavailable) as refused:
            return refused
    return error


def _journeys(request: Request[Any, Any, Any], origin: str) -> list[Journey]:
    """Journeys of this browser, the newest last; none without a cookie, or with one that is not ours."""
    cookie = request.cookies.get(_cookie_name(secure=is_https(origin)), "")
    with suppress(ValueError):
        return msgspec.json.decode(base64.urlsafe_b64decode(cookie), type=list[Journey])
    return []


def _journey_cookie(origin: str, journeys: Sequence[Journey]) -> Cookie:
    """Sent when the provider leads back here, as the session's would not be. Removed where there are no journeys."""
    secure = is_https(origin)
    value = base64.urlsafe_b64encode(msgspec.json.encode(journeys)).decode() if journeys else ""
    if len(value) > COOKIE_CHARS and len(journeys) > 1:
        return _journey_cookie(origin, journeys[1:])
    lifetime_s = AT_PROVIDER_S if value else 0
    return Cookie(_cookie_name(secure=secure), "/", value, lifetime_s, httponly=True, secure=secure, samesite="lax")


def _cookie_name(*, secure: bool) -> str:
    """Browsers take a cookie of the first name from this very host alone, over TLS."""
    return "__Host-ragkv_sign_in" if secure else "ragkv_sign_in"


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
    """End the session here and in the browser. A person goes on to the provider's place to sign out, if it has one."""
    holder, then = None, LOGIN
    if (token := session_token(request, settings.public_url)) is not None:
        holder = await asyncio.to_thread(sessions.holder, token)
        await asyncio.to_thread(sessions.end, token)
    if holder is not None:
        note_change(request, "Log out")
    if isinstance(holder, SignedIn) and provider is not None and sign_in is not None:
        with suppress(Unavailable, Rejected):
            back_to = origin_of(request, sign_in) + LOGIN
            then = await provider.sign_out_url(holder.id_token, back_to) or LOGIN
    return Response(LoggedOut(then), cookies=ended_cookies())
