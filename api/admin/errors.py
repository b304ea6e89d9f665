"""Errors as HTML pages for browsers; scripts of the dashboard get problem details like any API client."""

from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.response import Redirect
from litestar.types import ExceptionHandlersMap

from api.admin.headers import PATH
from api.admin.shell import page
from api.http.errors import HANDLERS, with_own
from ragkv.errors import Unauthorised

LOGIN = f"{PATH}/login"


def _respond(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    plain = HANDLERS[Exception](request, error)
    if "text/html" not in request.headers.get("accept", ""):
        return plain
    if isinstance(error, Unauthorised):
        path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
        page_url = f"{path}?{query}" if query else path
        return Redirect(f"{LOGIN}?next={quote(page_url, safe='')}")
    shown = page(request, "error.html", plain.status_code or 500, problem=plain.content)
    shown.headers.update(plain.headers)
    return shown


def with_pages(handlers: ExceptionHandlersMap) -> ExceptionHandlersMap:
    """The same handlers, with pages at PATH and under it."""
    return with_own(handlers, (f"{PATH}/",), _respond)
