"""Kept answers in Redis: the newest ones of each collection, as a ring of fixed-size records with a hash of bodies."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragkv.service.base.redis import Redis, reporting

MAX_ENTRIES = 1000
"""Answers of one collection. The next one takes the place of the oldest."""
MAX_BODY_BYTES = 64 * 1024
ID_BYTES = 16
GONE = 2**53
"""The generation of a deleted collection: later than any other."""
LATE_S = 24 * 3600
"""Longer than any answer is in the making."""
_PREFIX = "ragkv:answers:"
_PARTS = ("head", "records", "bodies")
_USED = f"{_PREFIX}used"

_Kept = TypeVar("_Kept")
Records = NDArray[np.void]
"""Rows of `record_type`."""

# A ring is three keys: BASE:head (a hash: the generation, how many answers were ever put, the bytes of bodies),
# BASE:records (fixed-size records) and BASE:bodies (a hash: slot -> body). Which rings there are is kept beside them:
# `used` sorts them by their last use, `used` of a tenant its own, `sizes` has the bytes of each, of each tenant, of
# all. They are dropped least recently used first, whole: a ring that no longer exists costs nothing to drop.
_DROP = """
local SIZES, USED = 'ragkv:answers:sizes', 'ragkv:answers:used'
local function tenant_of(base) return string.match(base, '^ragkv:answers:([^:]*):') end
local function used_of(tenant) return 'ragkv:answers:' .. tenant .. ':used' end
local function drop(base)
  redis.call('DEL', base .. ':head', base .. ':records', base .. ':bodies')
  local tenant, size = tenant_of(base), tonumber(redis.call('HGET', SIZES, base) or 0)
  redis.call('HDEL', SIZES, base)
  redis.call('ZREM', USED, base)
  redis.call('ZREM', used_of(tenant), base)
  redis.call('HINCRBY', SIZES, 'all', 0 - size)
  if redis.call('HINCRBY', SIZES, 'tenant:' .. tenant, 0 - size) <= 0 then redis.call('HDEL', SIZES, 'tenant:' .. tenant) end
end
"""

# KEYS: head, records, bodies, the collection's floor.
# ARGV: base, generation, a record, its body, answers a ring holds, milliseconds to live, now, bytes of a tenant, of
# all.
# What an earlier generation left can never be asked for again; what comes late is of one itself.
_PUT = (
    _DROP
    + """
local base, given, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[7])
local held = tonumber(redis.call('HGET', KEYS[1], 'generation') or -1)
if held > given or tonumber(redis.call('GET', KEYS[4]) or -1) > given then return 0 end
if held < given or redis.call('HEXISTS', KEYS[1], 'bytes') == 0 then drop(base) end
redis.call('HSET', KEYS[1], 'generation', ARGV[2])
local slot = (redis.call('HINCRBY', KEYS[1], 'put', 1) - 1) % tonumber(ARGV[5])
local more = #ARGV[4] - redis.call('HSTRLEN', KEYS[3], slot)
local bodies = redis.call('HINCRBY', KEYS[1], 'bytes', more)
local size = redis.call('SETRANGE', KEYS[2], slot * #ARGV[3], ARGV[3]) + bodies
redis.call('HSET', KEYS[3], slot, ARGV[4])
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[6]) end
local tenant = tenant_of(base)
local grown = size - tonumber(redis.call('HGET', SIZES, base) or 0)
redis.call('HSET', SIZES, base, size)
redis.call('HINCRBY', SIZES, 'all', grown)
redis.call('HINCRBY', SIZES, 'tenant:' .. tenant, grown)
redis.call('ZADD', USED, now, base)
redis.call('ZADD', used_of(tenant), now, base)
local function shrink(rings, of, limit)
  while tonumber(redis.call('HGET', SIZES, of) or 0) > limit do
    local oldest = redis.call('ZRANGE', rings, 0, 0)[1]
    if not oldest then return end
    drop(oldest)
  end
end
shrink(used_of(tenant), 'tenant:' .. tenant, tonumber(ARGV[8]))
shrink(USED, 'all', tonumber(ARGV[9]))
return redis.call('EXISTS', KEYS[1])
"""
)

# KEYS: the collection's floor. ARGV: tenant, how its rings' names begin, the least generation that stays, seconds for
# which no older answer is taken, when the collection is gone: its counts. The floor never falls: what an overtaken call
# names may be older. Deleting goes first, because a Redis that is full refuses what writes, but for a script that has
# deleted.
_FORGET = (
    _DROP
    + """
local dropped = 0
for _, base in ipairs(redis.call('ZRANGE', used_of(ARGV[1]), 0, -1)) do
  if string.sub(base, 1, #ARGV[2]) == ARGV[2] then
    local held = redis.call('HGET', base .. ':head', 'generation')
    if not held or tonumber(held) < tonumber(ARGV[3]) then
      drop(base)
      dropped = dropped + 1
    end
  end
end
if ARGV[5] ~= '' then redis.call('DEL', ARGV[5]) end
if tonumber(redis.call('GET', KEYS[1]) or -1) <= tonumber(ARGV[3]) then
  redis.pcall('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
end
return dropped
"""
)


@dataclass(frozen=True, slots=True)
class RingName:
    """Name of a ring: a tenant's collection in one generation, with vectors of one encoder."""

    tenant_id: str
    collection_id: str
    index_fingerprint: str
    generation: int

    @property
    def base(self) -> str:
        return f"{_of(self.tenant_id, self.collection_id)}{self.index_fingerprint}"

    def keys(self) -> list[str]:
        return [f"{self.base}:{part}" for part in _PARTS]


@dataclass(frozen=True, slots=True)
class AnswerRoom:
    """Bytes that kept answers may take: of one tenant, and of all together."""

    tenant: int
    all: int


class AnswerRing:
    """All answers of all collections, within `room`: beyond it the collections go that were not asked for the longest.

    Every method raises Unavailable when Redis is away.
    """

    def __init__(self, client: Redis, room: AnswerRoom) -> None:
        self._client = client
        self._room = room
        self._put = client.register_script(_PUT)
        self._forget = client.register_script(_FORGET)

    def records(self, name: RingName, dim: int) -> Records:
        """Kept records, in no order: none if it is of another generation."""
        head, records, _ = name.keys()
        with reporting(self._client), self._client.pipeline() as pipeline:
            pipeline.hget(head, "generation")
            pipeline.get(records)
            for used in (_USED, f"{_PREFIX}{name.tenant_id}:used"):
                pipeline.zadd(used, {name.base: time.time()}, xx=True)
            generation, packed, *_ = pipeline.execute()
        if generation is None or int(generation) != name.generation or packed is None:
            return np.zeros(0, record_type(dim))
        return np.frombuffer(packed, record_type(dim))

    def bodies(self, name: RingName, slots: Sequence[int]) -> list[bytes | None]:
        """Bodies by the places of their records. A newer one may have taken the place meanwhile: compare ids."""
        with reporting(self._client):
            bodies: list[bytes | None] = self._client.hmget(name.keys()[2], [str(slot) for slot in slots])  # type: ignore[assignment]
        return bodies

    def put(self, name: RingName, record: bytes, body: bytes, ttl_s: int) -> bool:
        """Keep an answer. False if the collection has changed since, or if there is no room for its answers."""
        keys = [*name.keys(), floor_key(name.tenant_id, name.collection_id)]
        values: list[Any] = [name.base, name.generation, record, body, MAX_ENTRIES, ttl_s * 1000]
        with reporting(self._client):
            return bool(self._put(keys=keys, args=[*values, time.time(), self._room.tenant, self._room.all]))

    def count(self, tenant_id: str, collection_id: str, outcome: str) -> None:
        with reporting(self._client):
            self._client.hincrby(_counts(tenant_id, collection_id), outcome, 1)

    def counts(self, tenant_id: str, collection_id: str) -> Mapping[str, int]:
        with reporting(self._client):
            counted: dict[bytes, bytes] = self._client.hgetall(_counts(tenant_id, collection_id))  # type: ignore[assignment]
        return {outcome.decode(): int(number) for outcome, number in counted.items()}

    def collections(self) -> list[tuple[str, str]]:
        """(tenant, collection) of everything that is kept."""
        with reporting(self._client):
            bases: list[bytes] = self._client.zrange(_USED, 0, -1)  # type: ignore[assignment]
        return sorted({(parts[2], parts[3]) for parts in (base.decode().split(":") for base in bases)})

    def drop_unlisted(self) -> int:
        """Remove rings that were kept by a version which listed none. Returns how many."""
        with reporting(self._client):
            heads = [head.decode() for head in self._client.scan_iter(f"{_PREFIX}*:head", count=1000)]
            bases = [
                base
                for base in (head.removesuffix(":head") for head in heads)
                if self._client.zscore(_USED, base) is None
            ]
            for base in bases:
                self._client.delete(*(f"{base}:{part}" for part in _PARTS))
        return len(bases)

    def forget(self, tenant_id: str, collection_id: str, generation: int) -> int:
        """Remove the answers of generations before `generation`, and take none of these for a day. Returns how many
        rings.

        `generation` GONE: the collection is deleted, and its counts go too.
        """
        counts = _counts(tenant_id, collection_id) if generation == GONE else ""
        args: list[Any] = [tenant_id, _of(tenant_id, collection_id), generation, LATE_S, counts]
        with reporting(self._client):
            return int(self._forget(keys=[floor_key(tenant_id, collection_id)], args=args))


def record_type(dim: int) -> np.dtype[Any]:
    """`asked`: what the question asked for beside its words. `at`: seconds since 1970. Without padding."""
    return np.dtype(
        [("id", f"V{ID_BYTES}"), ("asked", f"V{ID_BYTES}"), ("at", "<f8"), ("vector", "<f4", (dim,))]
    )  # fmt: skip


def unpacked(packed: bytes, kind: type[_Kept]) -> _Kept | None:
    """A value from Redis; None for one that another version kept in another form."""
    try:
        return msgspec.msgpack.decode(packed, type=kind)
    except msgspec.DecodeError:
        return None


def new_record_id() -> bytes:
    return secrets.token_bytes(ID_BYTES)


def _of(tenant_id: str, collection_id: str) -> str:
    """Prefix of the names of a collection's keys."""
    return f"{_PREFIX}{tenant_id}:{collection_id}:"


def _counts(tenant_id: str, collection_id: str) -> str:
    return f"{_of(tenant_id, collection_id)}counts"


def floor_key(tenant_id: str, collection_id: str) -> str:
    """The key of the least generation whose answers are taken, set by `forget`."""
    return f"{_of(tenant_id, collection_id)}floor"
