"""Request bodies: JSON unless another type is stated, and forms within limits."""

import re
from typing import Any

from api.http.forms import BoundedFormRequest
from ragkv.errors import Unsupported

_JSON = re.compile(r"application/(?:[^/\s]+\+)?json")


class CheckedRequest(BoundedFormRequest):
    """The request of every handler."""

    async def json(self) -> Any:
        """The body as JSON. Raises Unsupported for a body of another content type: pages of other sites can send those,
        but not JSON."""
        kind, _ = self.content_type
        if kind and not _JSON.fullmatch(kind):
            raise Unsupported(
                f"Content-Type {kind[:80]!r} is not supported: send JSON, with Content-Type: application/json"
            )
        return await super().json()
