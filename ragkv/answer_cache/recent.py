"""The last day's answers in Redis, by id, for feedback. Their text is stored nowhere else."""

import logging
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ragkv.answer.question import Answer, Question
from ragkv.chunk import Chunk
from ragkv.errors import Unavailable
from ragkv.redis_client import reporting

if TYPE_CHECKING:
    import redis

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


class RecentAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An answer without the text of its passages. `chunks`: of each passage, in the prompt's order, the chunk's id and
    a checksum of its text, since a replaced document has chunks of the same ids."""

    collection_id: str
    question: str
    answer: str
    chunks: tuple[tuple[str, int], ...]


class RecentAnswers:
    """Every call blocks."""

    def __init__(self, client: "redis.Redis") -> None:
        self._redis = client

    def keep(self, question: Question, answer: Answer) -> None:
        """Does not raise when Redis is away: the answer is delivered, and takes no feedback."""
        chunks = tuple((passage.chunk.id, checksum(passage.chunk)) for passage in answer.passages)
        packed = msgspec.msgpack.encode(RecentAnswer(question.collection_id, question.text, answer.text, chunks))
        if len(packed) > MAX_BYTES:
            return
        key, place = _key(question.tenant_id, answer.id), _place(question.tenant_id, question.collection_id)
        try:
            with reporting():
                self._put(key, packed, ((place, MAX_OF_COLLECTION), (_ALL, MAX_OF_ALL)))
        except Unavailable as error:
            log.warning("an answer takes no feedback: %s", error)

    def forget(self, tenant_id: str, collection_id: str) -> None:
        """Remove the answers of a collection. While Redis is away they stay for the worker's sweep."""
        place = _place(tenant_id, collection_id)
        try:
            with reporting():
                self._remove(self._redis.zrange(place, 0, -1), place)
        except Unavailable as error:
            log.warning("recent answers of collection %s are removed by a later sweep: %s", collection_id, error)

    def find(self, tenant_id: str, answer_id: str) -> RecentAnswer | None:
        """None for an answer that is older, or another tenant's. Raises Unavailable."""
        with reporting():
            packed = self._redis.get(_key(tenant_id, answer_id))
        return msgspec.msgpack.decode(packed, type=RecentAnswer) if isinstance(packed, bytes) else None

    def collections(self) -> list[tuple[str, str]]:
        """(tenant, collection) of those that have answers. Raises Unavailable."""
        with reporting():
            found = [str(name, "ascii") for name in self._redis.scan_iter(f"{_OF}*")]
        return [(tenant, collection) for tenant, _, collection in (name[len(_OF) :].partition(":") for name in found)]

    def keep_only(self, tenant_id: str, collection_id: str, checksums: Callable[[list[str]], Mapping[str, int]]) -> int:
        """Remove the answers of a collection with a passage that is gone or changed; returns how many.

        `checksums` gives those of the chunks that there are now. Raises Unavailable.
        """
        place = _place(tenant_id, collection_id)
        with reporting():
            keys: list[Any] = self._redis.zrange(place, 0, -1)
            packed: list[Any] = self._redis.mget(keys) if keys else []
        read = (
            (key, msgspec.msgpack.decode(one, type=RecentAnswer)) for key, one in zip(keys, packed, strict=True) if one
        )
        answers = dict(read)
        now = checksums(sorted({chunk_id for answer in answers.values() for chunk_id, _ in answer.chunks}))
        stale = [key for key, one in answers.items() if any(now.get(chunk) != digest for chunk, digest in one.chunks)]
        with reporting():
            self._remove(stale, place)
        return len(stale)

    def _put(self, key: str, packed: bytes, lists: Sequence[tuple[str, int]]) -> None:
        """Keep an answer, listed in each list by its time, and remove what is oldest beyond a list's limit."""
        with self._redis.pipeline() as pipe:
            pipe.set(key, packed, ex=KEPT_S)
            for name, most in lists:
                pipe.zadd(name, {key: time.time()})
                pipe.expire(name, KEPT_S)
                pipe.zrange(name, 0, -most - 1)
            beyond = pipe.execute()[3::3]
        for (name, _), keys in zip(lists, beyond, strict=True):
            self._remove(keys, name)

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
