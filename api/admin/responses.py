"""Responses under /admin: errors as HTML pages for browsers, and security headers, which the API reference has too."""

from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.datastructures import MutableScopeHeaders
from litestar.response import Redirect
from litestar.types import Message, Scope

from api.admin.shell import page
from api.http.errors import problem_response
from ragkv.errors import Unauthorised

PATH = "/admin"
GUARDED = (PATH, "/schema")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LOGIN = f"{PATH}/login"


async def guard_pages(message: Message, scope: Scope) -> None:
    """Add the headers to every response under GUARDED, errors included. A hook before a message is sent."""
    path = scope["path"]
    if message["type"] != "http.response.start" or not f"{path}/".startswith(tuple(f"{prefix}/" for prefix in GUARDED)):
        return
    headers = MutableScopeHeaders.from_message(message)
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("cache-control", "no-store")


def error_page(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """An error as a page, or as problem details for scripts; for a browser without a session, the way to the login.

    With a link on another site a browser does not send the session's cookie. From a page of ours it does: that page
    leads on.
    """
    plain = problem_response(request, error)
    if "text/html" not in request.headers.get("accept", ""):
        return plain
    if isinstance(error, Unauthorised):
        path, query = quote(request.scope["path"]), request.scope["query_string"].decode("latin-1")
        page_url = f"{path}?{query}" if query else path
        if request.headers.get("sec-fetch-site") == "cross-site":
            return page(request, "onward.html", next=page_url)
        return Redirect(f"{LOGIN}?next={quote(page_url, safe='')}")
    shown = page(request, "error.html", plain.status_code or 500, problem=plain.content)
    shown.headers.update(plain.headers)
    return shown
