"""Rate limits of keys and tenants: buckets of requests in Redis, shared by all processes of the service."""

import logging
import threading

from ragkv.errors import Throttled, Unavailable
from ragkv.observe import metrics
from ragkv.service.base.redis import Redis, reporting
from ragkv.text import plural

log = logging.getLogger(__name__)

TOO_MANY_OF_A_KEY = "more than {} a minute with one key: wait, or raise RAGKV_REQUESTS_PER_MINUTE"
TOO_MANY_OF_A_TENANT = (
    "more than {} a minute with all keys of a tenant: wait, or raise RAGKV_TENANT_REQUESTS_PER_MINUTE"
)
TOO_MANY_FAILED_LOGINS = "too many failed logins from this address: wait a minute"

# The generic cell rate algorithm: one number a key, the moment (microseconds) at which its bucket is full again.
# KEYS[1] the bucket; ARGV[1] microseconds that one request takes to grow back; ARGV[2] those of a whole bucket.
# A moment further ahead than a whole bucket was written before the clock was set back: the bucket is full.
# Returns 0, or the microseconds to wait.
_TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local kept = tonumber(redis.call('GET', KEYS[1]) or now)
if kept < now or kept > now + ARGV[2] then kept = now end
local full = kept + ARGV[1]
local wait = full - ARGV[2] - now
if wait > 0 then return wait end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
return 0
"""


class RateLimit:
    """A bucket of `per_minute` requests for each name, which refills evenly within a minute. 0: no limit.

    refusal: message of a refused request; `{}` stands for the limit, as 60 requests.

    When Redis is away: with `fails_open` requests pass, and are counted in `passed_unchecked` and logged; without it
    `take` raises Unavailable.
    """

    def __init__(self, client: Redis, per_minute: int, *, fails_open: bool, refusal: str = TOO_MANY_OF_A_KEY) -> None:
        self._client = client
        self._take = client.register_script(_TAKE)
        self._per_minute = per_minute
        self._fails_open = fails_open
        self._refusal = refusal.format(plural(per_minute, "request"))
        self._lock = threading.Lock()
        self.passed_unchecked = 0

    def take(self, key_id: str) -> None:
        """Count one request. Raises Throttled if the bucket is empty."""
        if not self._per_minute:
            return
        cost_us = 60_000_000 // self._per_minute
        try:
            with reporting(self._client):
                wait_us = int(self._take(keys=[f"ragkv:rate:{key_id}"], args=[cost_us, cost_us * self._per_minute]))
        except Unavailable as error:
            if not self._fails_open:
                raise
            with self._lock:
                self.passed_unchecked += 1
            metrics.unchecked.inc()
            log.warning("requests are not counted (%d so far): %s", self.passed_unchecked, error)
            return
        if wait_us:
            raise Throttled(self._refusal, retry_after_s=wait_us / 1e6)
