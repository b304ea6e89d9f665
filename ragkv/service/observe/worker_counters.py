"""Counters of all workers' work, and of evictions, kept in Redis: processes come and go, and one reports the sums."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ragkv.errors import Unavailable
from ragkv.kv.eviction import EvictionReason
from ragkv.service.base.redis import Redis, reporting

log = logging.getLogger(__name__)

STAGE_BUCKETS_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the buckets that a stage's seconds are sorted into; longer ones go to +Inf."""
_HASH = "ragkv:tally"


class WorkerCounters:
    """Counters that live as long as the Redis. What happens while it is away, or without one, is not counted.

    Fields: documents:OUTCOME, tokens:ORIGIN, evicted:REASON:files, evicted:REASON:bytes, uploads:OUTCOME, upload_bytes,
    syncs:OUTCOME, synced:CHANGE,
    stage:STAGE:sum in seconds, and stage:STAGE:BOUND, one a bucket.
    """

    def __init__(self, client: Redis | None = None) -> None:
        self._client = client

    def document(self, outcome: str) -> None:
        """An ingestion ended."""
        self._add({f"documents:{outcome}": 1})

    def tokens(self, **origins: int) -> None:
        """Tokens whose KV was computed, or was there."""
        self._add({f"tokens:{origin}": amount for origin, amount in origins.items()})

    def evicted(self, reason: EvictionReason, files: int, num_bytes: int) -> None:
        """KV was removed."""
        if files:
            self._add({f"evicted:{reason}:files": files, f"evicted:{reason}:bytes": num_bytes})

    def uploads(self, files: int, num_bytes: int, failed: int) -> None:
        """KV files were uploaded to the object store, or could not be."""
        amounts = {"uploads:done": files, "uploads:failed": failed, "upload_bytes": num_bytes}
        self._add({field: amount for field, amount in amounts.items() if amount})

    def synced(self, outcome: str, **files: int) -> None:
        """A sync of a data source ended; files by what became of them."""
        self._add({f"syncs:{outcome}": 1, **{f"synced:{change}": number for change, number in files.items() if number}})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage. One that fails is timed as well."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            bucket = next((bound for bound in STAGE_BUCKETS_S if seconds <= bound), "+Inf")
            self._add({f"stage:{name}:sum": seconds, f"stage:{name}:{bucket}": 1})

    def read(self) -> dict[str, float]:
        """The value of each field. Raises Unavailable."""
        if self._client is None:
            return {}
        with reporting(self._client):
            counters = self._client.hgetall(_HASH)
        return {
            field if isinstance(field, str) else field.decode(): float(amount) for field, amount in counters.items()
        }

    def _add(self, amounts: dict[str, float]) -> None:
        if self._client is None or not amounts:
            return
        try:
            with reporting(self._client), self._client.pipeline(transaction=True) as together:
                for field, amount in amounts.items():
                    together.hincrbyfloat(_HASH, field, amount)
                together.execute()
        except Unavailable as error:
            log.warning("not counted: %s", error)
