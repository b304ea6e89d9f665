"""Errors as pages, for people; scripts that ask the dashboard get problem details like everybody else."""

from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.response import Redirect
from litestar.types import ExceptionHandlersMap

from api.admin.shell import page
from api.http.errors import HANDLERS
from ragkv.errors import Unauthorised

LOGIN = "/admin/login"


def _respond(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    plain = HANDLERS[Exception](request, error)
    if "text/html" not in request.headers.get("accept", ""):
        return plain
    if isinstance(error, Unauthorised):
        return Redirect(f"{LOGIN}?next={quote(_place(request), safe='')}")
    shown = page(request, "error.html", plain.status_code or 500, problem=plain.content)
    shown.headers.update(plain.headers)
    return shown


def _place(request: Request[Any, Any, Any]) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


PAGE_HANDLERS: ExceptionHandlersMap = dict.fromkeys(HANDLERS, _respond)
