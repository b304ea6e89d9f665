"""Answers of the last day in Redis, by their ids: what feedback is about. Their text is stored nowhere else."""

import logging
import zlib
from typing import TYPE_CHECKING

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
_PREFIX = "ragkv:recent:"


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
        try:
            with reporting():
                self._redis.set(_key(question.tenant_id, answer.id), packed, ex=KEPT_S)
        except Unavailable as error:
            log.warning("an answer takes no feedback: %s", error)

    def find(self, tenant_id: str, answer_id: str) -> RecentAnswer | None:
        """None for an answer that is older, or another tenant's. Raises Unavailable."""
        with reporting():
            packed = self._redis.get(_key(tenant_id, answer_id))
        return msgspec.msgpack.decode(packed, type=RecentAnswer) if isinstance(packed, bytes) else None


def checksum(chunk: Chunk) -> int:
    return zlib.crc32(f"{chunk.title}\n{chunk.text}".encode())


def _key(tenant_id: str, answer_id: str) -> str:
    return f"{_PREFIX}{tenant_id}:{answer_id}"
