"""Request bodies: JSON unless another type is stated, and forms, all within limits."""

import re
from collections.abc import AsyncGenerator
from typing import Any

from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from api.http.forms import BoundedFormRequest
from ragkv.errors import TooLarge, Unsupported

ADVICE = "advice_on_size"
"""Option of a route: advice for a body beyond the route's limit."""
OF_UPLOADS = {ADVICE: "split the file, or raise RAGKV_MAX_UPLOAD_BYTES"}
"""Options of routes whose limit depends on that setting."""
_JSON = re.compile(r"application/(?:[^/\s]+\+)?json")


class CheckedRequest(BoundedFormRequest):
    """The request of every handler."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces. Raises TooLarge beyond the route's limit."""
        try:
            async for piece in super().stream():
                yield piece
        except RequestEntityTooLarge:
            limit = self.route_handler.resolve_request_max_body_size() or 0
            advice = self.route_handler.opt.get(ADVICE, "shorten it, or send it in several requests")
            raise TooLarge(f"the body of this request may have at most {_size(limit)}: {advice}") from None

    async def json(self) -> Any:
        """The body as JSON. Raises Unsupported for a body of another content type: pages of other sites can send those,
        but not JSON."""
        kind, _ = self.content_type
        if kind and not _JSON.fullmatch(kind):
            raise Unsupported(
                f"Content-Type {kind[:80]!r} is not supported: send JSON, with Content-Type: application/json"
            )
        return await super().json()


def _size(num_bytes: int) -> str:
    """The size in the largest unit that it is a multiple of."""
    for unit, size in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if num_bytes % size == 0:
            return f"{num_bytes // size:,} {unit}"
    return f"{num_bytes:,} bytes"
