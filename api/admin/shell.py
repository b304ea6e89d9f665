"""The frame and navigation that all pages of the dashboard share, rendered with Jinja."""

from http import HTTPStatus
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Request, Response

from api.admin.format import FILTERS
from ragkv.service.base.caller import Caller

AdminRequest = Request[Caller, str | None, Any]
"""`user` is the caller, `auth` the session's CSRF token; None while the service is open and needs no session."""

NAVIGATION = (
    ("Overview", "/admin", "pulse"),
    ("Collections", "/admin/collections", "folder"),
    ("Data sources", "/admin/data-sources", "link"),
    ("Playground", "/admin/playground", "chat"),
    ("Questions", "/admin/questions", "question"),
    ("Evaluations", "/admin/evaluations", "scales"),
    ("KV store", "/admin/kv", "layers"),
    ("Writer", "/admin/writer", "pen"),
    ("Jobs", "/admin/jobs", "list"),
    ("Keys", "/admin/keys", "key"),
    ("Webhooks", "/admin/webhooks", "bell"),
    ("Audit", "/admin/audit", "book"),
    ("Settings", "/admin/settings", "sliders"),
)
"""(label, path, icon of templates/icons.html)."""

_ENVIRONMENT = Environment(
    loader=PackageLoader("api.admin"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_ENVIRONMENT.filters.update(FILTERS)


def page(
    request: Request[Any, Any, Any], template: str, status_code: int = HTTPStatus.OK, **context: Any
) -> Response[str]:
    """Render a template of the folder `templates` for the caller; most templates extend base.html.

    Every template has `caller` (None at login), `csrf_token` ("" without a session), `is_open` (no key is required
    yet), `navigation` and `active`, the path of the navigation entry this page belongs to.
    """
    caller: Caller | None = request.scope.get("user")
    path = request.scope["path"].replace("/admin/documents", "/admin/collections", 1)  # a document is in a collection
    entries = [entry for _, entry, _ in NAVIGATION]
    common = {
        "caller": caller,
        "csrf_token": request.scope.get("auth") or "",
        "is_open": caller is not None and caller.identity is None,
        "navigation": NAVIGATION,
        "active": path if path in entries else "/".join(path.split("/")[:3]),
    }
    return Response(render(template, **common, **context), media_type=MediaType.HTML, status_code=status_code)


def render(template: str, **context: Any) -> str:
    """Render a template as HTML. All values are escaped."""
    return _ENVIRONMENT.get_template(template).render(context)
