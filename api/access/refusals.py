"""Refusals remembered for a moment: a client that retries at once is refused without access to the database or
Redis."""

import time

from api.http.credentials import digest_of
from ragkv.errors import Throttled

REMEMBERED = 10_000
LONGEST_S = 1.0


class Refusals:
    """Keys that were throttled, by their digest. In the event loop only."""

    def __init__(self) -> None:
        self._until: dict[bytes, tuple[float, str]] = {}

    def check(self, key: str) -> None:
        """Refuse a key that was refused just now. Raises Throttled while the key's last refusal holds."""
        if not self._until:
            return
        until, refusal = self._until.get(_digest(key), (0.0, ""))
        if (left := until - time.monotonic()) > 0:
            raise Throttled(refusal, left)

    def note(self, key: str, error: Throttled) -> None:
        if len(self._until) >= REMEMBERED:
            self._until.clear()
        self._until[_digest(key)] = (time.monotonic() + min(error.retry_after_s, LONGEST_S), str(error))


def _digest(key: str) -> bytes:
    return digest_of(key.encode("utf-8", "surrogatepass"))
