"""The append-only log of the embedded Redis: deleted data stays in it until it is rewritten from what Redis holds."""

import time
from typing import TYPE_CHECKING

from ragkv.ids import new_id
from ragkv.redis_client import reporting

if TYPE_CHECKING:
    import redis

POLL_S = 0.05
_DELETIONS = "ragkv:log:deletions"
"""A set of what the log still contains, though it is deleted. A rewrite takes out those that it began with."""


class AppendLog:
    """Methods block, and raise Unavailable when Redis is away."""

    def __init__(self, client: "redis.Redis") -> None:
        self._redis = client

    def note_deletion(self) -> None:
        """Have the log rewritten: by a worker's next sweep, or when the server stops."""
        with reporting():
            self._redis.sadd(_DELETIONS, new_id())

    def rewrite(self, timeout_s: float) -> bool:
        """Rewrite the log if anything was deleted since. True once that is done; False if there is no need, if another
        process does it, or if it fails or takes longer: then a later call tries again."""
        with reporting():
            deletions = list(self._redis.smembers(_DELETIONS))
            if not deletions or self._is_rewriting():
                return False
            self._redis.bgrewriteaof()
            deadline = time.monotonic() + timeout_s
            while self._is_rewriting():
                if time.monotonic() > deadline:
                    return False
                time.sleep(POLL_S)
            if self._redis.info("persistence")["aof_last_bgrewrite_status"] != "ok":
                return False
            self._redis.srem(_DELETIONS, *deletions)
            return True

    def _is_rewriting(self) -> bool:
        state = self._redis.info("persistence")
        return bool(state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"])
