"""Bodies of requests: JSON where nothing else is said, and forms within their limits."""

import re
from typing import Any

from api.http.forms import BoundedFormRequest
from ragkv.errors import Unsupported

_JSON = re.compile(r"application/(?:[^/\s]+\+)?json")


class CheckedRequest(BoundedFormRequest):
    """The request of every handler."""

    async def json(self) -> Any:
        """Raises Unsupported for a body that says it is something else: another site's page can send that, and not JSON."""
        kind, _ = self.content_type
        if kind and not _JSON.fullmatch(kind):
            raise Unsupported(
                f"Content-Type {kind[:80]!r} is not supported: send JSON, with Content-Type: application/json"
            )
        return await super().json()
