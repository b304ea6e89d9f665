"""Kept answers in Redis: of each collection the newest ones, as a ring of fixed-size records beside a hash of bodies."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragkv.redis_door import reporting

if TYPE_CHECKING:
    import redis

MAX_ENTRIES = 1000
"""Answers of one collection. The next one takes the place of the oldest."""
MAX_BODY_BYTES = 64 * 1024
ID_BYTES = 16

Records = NDArray[np.void]
"""Rows of `record_type`."""

# KEYS: head (the generation, and how many were ever put), records, bodies.
# ARGV: generation, a record, its body, MAX_ENTRIES, milliseconds to live.
# What an earlier generation left can never be asked for again; what comes late is of one itself.
_PUT = """
local held, given = tonumber(redis.call('HGET', KEYS[1], 'generation') or -1), tonumber(ARGV[1])
if held > given then return 0 end
if held < given then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
  redis.call('HSET', KEYS[1], 'generation', ARGV[1])
end
local slot = (redis.call('HINCRBY', KEYS[1], 'put', 1) - 1) % tonumber(ARGV[4])
redis.call('SETRANGE', KEYS[2], slot * #ARGV[2], ARGV[2])
redis.call('HSET', KEYS[3], slot, ARGV[3])
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[5]) end
return 1
"""


@dataclass(frozen=True, slots=True)
class RingName:
    """Whose answers: a tenant's collection in one generation, with vectors of one encoder."""

    tenant_id: str
    collection_id: str
    recipe: str
    generation: int

    def keys(self) -> list[str]:
        base = f"ragkv:answers:{self.tenant_id}:{self.collection_id}:{self.recipe}"
        return [f"{base}:{part}" for part in ("head", "records", "bodies")]


class AnswerRing:
    """All answers of all collections. Every method raises Unavailable when Redis is away."""

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client
        self._put = client.register_script(_PUT)

    def records(self, name: RingName, dim: int) -> Records:
        """What is kept, in no order: none if it is of another generation."""
        head, records, _ = name.keys()
        with reporting(), self._client.pipeline() as pipeline:
            pipeline.hget(head, "generation")
            pipeline.get(records)
            generation, packed = pipeline.execute()
        if generation is None or int(generation) != name.generation or packed is None:
            return np.zeros(0, record_type(dim))
        return np.frombuffer(packed, record_type(dim))

    def bodies(self, name: RingName, slots: Sequence[int]) -> list[bytes | None]:
        """Bodies by the places of their records. A newer one may have taken the place meanwhile: compare ids."""
        with reporting():
            found: list[bytes | None] = self._client.hmget(name.keys()[2], [str(slot) for slot in slots])  # type: ignore[assignment]
        return found

    def put(self, name: RingName, record: bytes, body: bytes, ttl_s: int) -> bool:
        """Keep an answer. False if the collection has changed since."""
        with reporting():
            return bool(self._put(keys=name.keys(), args=[name.generation, record, body, MAX_ENTRIES, ttl_s * 1000]))

    def count(self, tenant_id: str, collection_id: str, outcome: str) -> None:
        with reporting():
            self._client.hincrby(_counts(tenant_id, collection_id), outcome, 1)

    def counts(self, tenant_id: str, collection_id: str) -> Mapping[str, int]:
        with reporting():
            counted: dict[bytes, bytes] = self._client.hgetall(_counts(tenant_id, collection_id))  # type: ignore[assignment]
        return {outcome.decode(): int(number) for outcome, number in counted.items()}

    def forget(self, tenant_id: str, collection_id: str) -> None:
        """The counts of a collection that is deleted. Its answers end with their time."""
        with reporting():
            self._client.delete(_counts(tenant_id, collection_id))


def record_type(dim: int) -> np.dtype[Any]:
    """`asked`: what the question asked for beside its words. `at`: seconds since 1970. Without padding."""
    return np.dtype(
        [("id", f"V{ID_BYTES}"), ("asked", f"V{ID_BYTES}"), ("at", "<f8"), ("vector", "<f4", (dim,))]
    )  # fmt: skip


def new_record_id() -> bytes:
    return secrets.token_bytes(ID_BYTES)


def _counts(tenant_id: str, collection_id: str) -> str:
    return f"ragkv:answers:{tenant_id}:{collection_id}:counts"
