"""Routes of the dashboard: pages for callers with the scope admin, ways to leave a session, and static files."""

import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from litestar import Request, Response, Router, get
from litestar.params import FromPath
from litestar.response import Redirect
from litestar.types import ControllerRouterHandler

from api.access.auth import PUBLIC, administering, reading
from api.access.session import own_pages_only
from api.admin.administration import audit_page, keys_page, settings_page, webhooks_page
from api.admin.collections import collection_page, collections_page, data_source_page, data_sources_page
from api.admin.documents import document_page, jobs_page
from api.admin.kv import kv_page, plan_page, writer_page
from api.admin.login import login, login_page
from api.admin.overview import overview_page
from api.admin.questions import evaluation_page, evaluations_page, playground_page, questions_page
from api.admin.responses import PATH
from api.admin.sign_in import begin_sign_in, finish_sign_in, logout, switch_tenant
from ragkv.errors import NotFound

PAGES: list[ControllerRouterHandler] = [
    overview_page,
    playground_page,
    questions_page,
    evaluations_page,
    evaluation_page,
    collections_page,
    collection_page,
    document_page,
    jobs_page,
    keys_page,
    webhooks_page,
    data_sources_page,
    data_source_page,
    audit_page,
    kv_page,
    plan_page,
    writer_page,
    settings_page,
]
"""Handlers by their paths below /admin."""
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file and its ETag. Browsers cache it and revalidate at each use."""

    body: bytes
    media_type: str
    tag: str


ASSETS = {
    file.name: Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    for file in files("api.admin").joinpath("static").iterdir()
    for media_type in [MEDIA_TYPES.get(PurePath(file.name).suffix)]
    if media_type
    for body in [file.read_bytes()]
}
"""Read once, so that no request's name ever becomes a path."""


@get("/admin/static/{asset:str}", opt={PUBLIC: True}, include_in_schema=False)
async def static_file(asset: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
    """A file of the folder `static`, or 304 for a browser that has it."""
    file = ASSETS.get(asset)
    if file is None:
        raise NotFound(f"the dashboard has no file {asset[:80]!r}")
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(b"", status_code=HTTPStatus.NOT_MODIFIED, headers=headers, media_type=file.media_type)
    return Response(file.body, headers=headers, media_type=file.media_type)


@get("/", opt={PUBLIC: True}, include_in_schema=False)
async def dashboard() -> Redirect:
    """The dashboard, for people who know no more than the host."""
    return Redirect(PATH)


public = Router("/", route_handlers=[dashboard, login_page, login, begin_sign_in, finish_sign_in, static_file])
pages = Router("/", route_handlers=PAGES, guards=[administering])
leaving = Router("/", route_handlers=[logout, switch_tenant], guards=[reading])  # rights may have become fewer
own = Router(PATH, route_handlers=[pages, leaving], guards=[own_pages_only], include_in_schema=False)
admin_router = Router("/", route_handlers=[public, own])
