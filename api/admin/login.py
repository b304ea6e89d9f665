"""Log in with an API key."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import URLEncodedBody
from litestar.response import Redirect
from litestar.status_codes import HTTP_303_SEE_OTHER

from api.access.auditing import note_change
from api.access.auth import PUBLIC
from api.access.session import own_pages_only, refuse_plain_http, session_cookie
from api.admin.responses import LOGIN
from api.admin.shell import page
from api.http.errors import STATUS, headers_of
from ragkv.errors import Forbidden, RagKVError, Rejected, Throttled, Unauthorised
from ragkv.service.access.gate import Gate
from ragkv.service.access.rate import RateLimit
from ragkv.service.access.sessions import Sessions
from ragkv.service.access.sign_in import SignIn
from ragkv.service.base.caller import Caller
from ragkv.service.parts import Parts

HOME = "/admin"
FORM_BYTES = 16 * 1024
"""Room for a key and a page. The form is parsed on the event loop, for clients without a key."""
MAX_PLACE = 2000
"""Characters of a page's address that fit into a cookie, and twice encoded into the form."""
_PAGE = re.compile(r"/admin(?:[/?][!-\[\]-~]*)?")
"""A page of the dashboard: printable ASCII without a backslash, which browsers take for a slash."""


@dataclass
class LoginForm:
    """The login form. `next`: the dashboard page to go to afterwards."""

    key: str = ""
    next: str = HOME


@get(LOGIN, opt={PUBLIC: True}, include_in_schema=False, sync_to_thread=True)
def login_page(
    request: Request[Any, Any, Any], sign_in: NamedDependency[SignIn | None], gate: NamedDependency[Gate]
) -> Response[Any]:
    """Render the login form. While the service is open, no login is needed."""
    if gate.is_open():
        return Redirect(HOME)
    return login_form(request, sign_in, inside(request.query_params.get("next", HOME)))


@post(
    LOGIN,
    opt={PUBLIC: True},
    guards=[own_pages_only],
    include_in_schema=False,
    request_max_body_size=FORM_BYTES,
    sync_to_thread=True,
)
def login(
    data: URLEncodedBody[LoginForm], request: Request[Any, Any, Any], parts: NamedDependency[Parts]
) -> Response[Any]:
    """Start a session for a key with the scope admin."""
    try:
        refuse_plain_http(request, parts.settings.public_url)
        token, caller = _begin(data.key.strip(), address_of(request), parts.sessions, parts.gate, parts.login_limit)
    except (Unauthorised, Forbidden, Throttled, Rejected) as error:
        of_key = not isinstance(error, Rejected)
        return login_form(request, parts.sign_in, inside(data.next), error, of_key=of_key)
    note_change(request, "Log in", caller)
    response = Redirect(inside(data.next), status_code=HTTP_303_SEE_OTHER)
    response.set_cookie(session_cookie(request, token, parts.settings.public_url))
    return response


def login_form(
    request: Request[Any, Any, Any],
    sign_in: SignIn | None,
    next_page: str,
    error: RagKVError | None = None,
    *,
    of_key: bool = False,
) -> Response[str]:
    """Render the form, with what went wrong. `of_key`: it was the key that did."""
    response = page(
        request,
        "login.html",
        HTTPStatus.OK if error is None else STATUS[type(error)],
        next=next_page,
        error="" if error is None else str(error),
        of_key=of_key,
        of_person=isinstance(error, Forbidden) and not of_key,
        provider="" if sign_in is None else sign_in.provider,
    )
    response.headers.update({} if error is None else headers_of(error))
    return response


def address_of(request: Request[Any, Any, Any]) -> str:
    """The client's address, by which failures are counted."""
    return request.client.host if request.client else "nowhere"


def _begin(key: str, address: str, sessions: Sessions, gate: Gate, login_limit: RateLimit) -> tuple[str, Caller]:
    """Start a session and return its token and its caller. Raises Throttled after too many wrong keys, or too many
    requests of the right one, Unauthorised, Forbidden, Unavailable."""
    try:
        caller = gate.log_in(key)
    except Unauthorised:
        count_failure(address, login_limit)
        raise
    if not caller.may("admin"):
        raise Forbidden(
            "this key lacks the scope admin: `ragkv keys create --name dashboard --scope admin` creates one that has it"
        )
    assert caller.key_id is not None
    return sessions.begin(caller.key_id), caller


def count_failure(address: str, login_limit: RateLimit) -> None:
    """Count a failed login. Raises Throttled for one too many. A valid key passes whatever others sent, also behind a
    proxy where all share one address."""
    login_limit.take(f"login:{address}")


def inside(place: str) -> str:
    """The path if it is a page of the dashboard, without its query if that is long; otherwise the overview."""
    if len(place) > MAX_PLACE:
        place, _, _ = place.partition("?")
    return place if len(place) <= MAX_PLACE and _PAGE.fullmatch(place) else HOME
