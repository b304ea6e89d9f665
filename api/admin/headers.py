"""Security headers of the dashboard and the API reference: this origin only, no inline code, no caching."""

from litestar.datastructures import MutableScopeHeaders
from litestar.types import Message, Scope

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


async def guard_pages(message: Message, scope: Scope) -> None:
    """Add the headers to every response under GUARDED, errors included. A hook before a message is sent."""
    path = scope["path"]
    if message["type"] != "http.response.start" or not f"{path}/".startswith(tuple(f"{prefix}/" for prefix in GUARDED)):
        return
    headers = MutableScopeHeaders.from_message(message)
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("cache-control", "no-store")
