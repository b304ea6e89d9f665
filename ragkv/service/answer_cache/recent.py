"""The last day's answers in Redis, by id, for feedback. Their text is stored nowhere else."""

import logging
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ragkv.answer.question import Answer, Question
from ragkv.chunk import Chunk
from ragkv.errors import Unavailable
from ragkv.service.answer_cache.ring import floor_key, unpacked
from ragkv.service.base.redis import Redis, reporting

log = logging.getLogger(__name__)

KEPT_S = 24 * 3600
"""How long after an answer feedback on it may begin."""
MAX_BYTES = 16 * 1024
"""Size of one answer with its question. A longer one takes no feedback."""
MAX_OF_COLLECTION = 1000
MAX_OF_ALL = 8000
"""Together at most 128 MiB, far less with answers of ordinary length. The next one takes the place of the oldest."""
_PREFIX = "ragkv:recent:"
_ALL = f"{_PREFIX}all"
_OF = f"{_PREFIX}of:"
# KEYS: the answer, the lists of its collection and of all, the collection's floor. ARGV: generation, the packed answer,
# seconds to live, now, answers of each list. What is oldest beyond a list's limit goes.
_PUT = """
if tonumber(redis.call('GET', KEYS[4]) or -1) > tonumber(ARGV[1]) then return end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
for i = 2, 3 do
  redis.call('ZADD', KEYS[i], ARGV[4], KEYS[1])
  redis.call('EXPIRE', KEYS[i], ARGV[3])
  for _, oldest in ipairs(redis.call('ZRANGE', KEYS[i], 0, -1 - ARGV[3 + i])) do
    redis.call('DEL', oldest)
    redis.call('ZREM', KEYS[i], oldest)
  end
end
"""


class RecentAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An answer without the text of its passages. `chunks`: of each passage, in the prompt's order, the chunk's id and
    a checksum of its text, since a replaced document has chunks of the same ids."""

    collection_id: str
    question: str
    answer: str
    chunks: tuple[tuple[str, int], ...]


class RecentAnswers:
    """Every call blocks."""

    def __init__(self, client: Redis) -> None:
        self._redis = client
        self._put = client.register_script(_PUT)

    def keep(self, question: Question, answer: Answer, generation: int) -> None:
        """Keep an answer, unless a document of its collection was deleted or replaced since `generation`, that of the
        collection before the search.

        Does not raise when Redis is away: the answer is delivered, and takes no feedback."""
        chunks = tuple((passage.chunk.id, checksum(passage.chunk)) for passage in answer.passages)
        packed = msgspec.msgpack.encode(RecentAnswer(question.collection_id, question.text, answer.text, chunks))
        if len(packed) > MAX_BYTES:
            return
        ref = question.tenant_id, question.collection_id
        keys = [_key(question.tenant_id, answer.id), _place(*ref), _ALL, floor_key(*ref)]
        try:
            with reporting(self._redis):
                self._put(keys, [generation, packed, KEPT_S, time.time(), MAX_OF_COLLECTION, MAX_OF_ALL])
        except Unavailable as error:
            log.warning("an answer takes no feedback: %s", error)

    def forget(self, tenant_id: str, collection_id: str) -> None:
        """Remove the answers of a collection. Raises Unavailable."""
        place = _place(tenant_id, collection_id)
        with reporting(self._redis):
            self._remove(self._redis.zrange(place, 0, -1), place)

    def find(self, tenant_id: str, answer_id: str) -> RecentAnswer | None:
        """None for an answer that is older, or another tenant's. Raises Unavailable."""
        with reporting(self._redis):
            packed = self._redis.get(_key(tenant_id, answer_id))
        return unpacked(packed, RecentAnswer) if isinstance(packed, bytes) else None

    def collections(self) -> list[tuple[str, str]]:
        """(tenant, collection) of those that have answers. Raises Unavailable."""
        with reporting(self._redis):
            names = [str(name, "ascii") for name in self._redis.scan_iter(f"{_OF}*")]
        return [(tenant, collection) for tenant, _, collection in (name[len(_OF) :].partition(":") for name in names)]

    def keep_only(self, tenant_id: str, collection_id: str, checksums: Callable[[list[str]], Mapping[str, int]]) -> int:
        """Remove the answers of a collection with a passage that is gone or changed; returns how many.

        `checksums` gives those of the chunks that there are now. Raises Unavailable.
        """
        place = _place(tenant_id, collection_id)
        with reporting(self._redis):
            keys: list[Any] = self._redis.zrange(place, 0, -1)
            packed: list[Any] = self._redis.mget(keys) if keys else []
        answers = {key: unpacked(body, RecentAnswer) for key, body in zip(keys, packed, strict=True) if body}
        current = checksums(
            sorted({chunk_id for answer in answers.values() if answer for chunk_id, _ in answer.chunks})
        )
        stale = [
            key
            for key, answer in answers.items()
            if answer is None or any(current.get(chunk) != digest for chunk, digest in answer.chunks)
        ]
        with reporting(self._redis):
            self._remove(stale, place)
        return len(stale)

    def _remove(self, keys: Sequence[Any], place: str) -> None:
        if keys:
            self._redis.delete(*keys)
            self._redis.zrem(place, *keys)


def checksum(chunk: Chunk) -> int:
    return zlib.crc32(f"{chunk.title}\n{chunk.text}".encode())


def _key(tenant_id: str, answer_id: str) -> str:
    return f"{_PREFIX}{tenant_id}:{answer_id}"


def _place(tenant_id: str, collection_id: str) -> str:
    return f"{_OF}{tenant_id}:{collection_id}"
