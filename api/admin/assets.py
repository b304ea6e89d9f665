"""/admin/static: styles, scripts and icons of the dashboard. Nothing is loaded from another host."""

import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from litestar import Request, Response, get
from litestar.params import FromPath

from api.access.auth import PUBLIC
from ragkv.errors import NotFound

MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file and its ETag. Browsers cache it and revalidate at each use."""

    body: bytes
    media_type: str
    tag: str


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


def _assets() -> dict[str, Asset]:
    """Read all files once, so that no request's name ever becomes a path."""
    assets = {}
    for file in files("api.admin").joinpath("static").iterdir():
        _, dot, suffix = file.name.rpartition(".")
        if media_type := MEDIA_TYPES.get(dot + suffix):
            body = file.read_bytes()
            assets[file.name] = Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return assets


ASSETS = _assets()
