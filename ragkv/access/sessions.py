"""Sessions of the dashboard: a random token stands for an API key that was shown at login."""

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from ragkv.redis_client import reporting

if TYPE_CHECKING:
    import redis

LIFETIME_S = 12 * 60 * 60
TOKEN_CHARS = 64
"""256 random bits in hexadecimal digits."""


class Sessions:
    """Kept in Redis: the SHA-256 of a token -> the id of its key. Each raises Unavailable when Redis is away.

    A session says only which key was shown. Whether that key is still good is asked at each request.
    """

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client

    def begin(self, key_id: str) -> str:
        """The token of a new session. It ends after LIFETIME_S, or with `end`."""
        token = secrets.token_hex(TOKEN_CHARS // 2)
        with reporting():
            self._client.set(_place(token), key_id, ex=LIFETIME_S)
        return token

    def key_id(self, token: str) -> str | None:
        """The key of a session; None once it has ended."""
        if len(token) != TOKEN_CHARS:
            return None
        with reporting():
            found = self._client.get(_place(token))
        return found.decode() if isinstance(found, bytes) else None

    def end(self, token: str) -> None:
        with reporting():
            self._client.delete(_place(token))


def csrf_token(token: str) -> str:
    """The CSRF token of a session: known to its pages, not to those of another site."""
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


def _place(token: str) -> str:
    return f"ragkv:session:{hashlib.sha256(token.encode()).hexdigest()}"
