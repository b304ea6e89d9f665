"""Answers that can be reused: for a question with the same meaning, if the collection has not changed since.

Off unless the collection says otherwise. Nothing is looked for, or kept, for a question within a conversation, one
whose answer depends on the day, and one that is not answered greedily as text. Redis being away is a miss.
"""

import dataclasses
import hashlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ragkv.answer.question import NOTHING_RAN, Answer, CachedAnswer, Citation, Delta, Question, Timings
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import GREEDY
from ragkv.errors import Unavailable
from ragkv.observe import metrics
from ragkv.retrieve.index import Vectors
from ragkv.service.answer_cache.guards import is_time_bound, may_share_answer
from ragkv.service.answer_cache.recent import RecentAnswers
from ragkv.service.answer_cache.ring import (
    ID_BYTES,
    MAX_BODY_BYTES,
    AnswerRing,
    RingName,
    new_record_id,
    record_type,
    unpacked,
)
from ragkv.service.base.database import Database
from ragkv.service.collections.statements import cache_terms
from ragkv.settings import Settings
from ragkv.threads import Threads

if TYPE_CHECKING:
    from ragkv.answer.service import Answerer  # takes seconds to import: torch

log = logging.getLogger(__name__)

MAX_QUESTION_CHARACTERS = 1000
"""About as much of a question as its vector knows of. Of a longer one nothing is kept, and nothing serves it."""
CANDIDATES = 8
"""Kept questions, the nearest first, whose words are compared with the question's."""
WHOLE = frozenset({"stop", "length"})
"""How an answer ends that is worth keeping."""
_NOT_ASKED_FOR = frozenset(
    {"tenant_id", "collection_id", "text", "history", "answer_cache", "sees_kept_question", "id"}
)

WITHOUT_INFLUENCE = frozenset({
    # The bytes of models have separate fingerprints.
    "model", "model_revision", "encoder", "encoder_revision",
    # Where things are, and how to get at them. Each answer of an engine names its weights.
    "data_dir", "database_url", "redis_url", "engine_url", "engine_api_key", "ingest_engine_url", "qdrant_api_key",
    "host", "port", "public_url", "cors_origins", "webhook_hosts",
    "kv_remote_endpoint", "kv_remote_region", "kv_remote_access_key", "kv_remote_secret_key",
    "oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_scopes", "oidc_groups_claim", "oidc_groups", "oidc_session_s",
    "oidc_key_days",
    # What is admitted, how much is kept and for how long.
    "max_upload_bytes", "max_tenant_bytes", "max_tenant_documents", "max_tenant_kv_bytes", "max_kv_bytes", "max_remote_kv_bytes", "host_kv_bytes",
    "min_free_bytes", "audit_retention_days",
    "eviction", "eviction_half_life_s",
    "data_sources_allowed", "data_sources_endpoint", "data_sources_region", "data_sources_access_key", "data_sources_secret_key",
    "max_answer_bytes", "max_tenant_answer_bytes", "requests_per_minute", "tenant_requests_per_minute",
    "refusals_per_minute", "max_streams", "max_questions", "max_uploads", "max_connections", "question_retention_days",
    "kv_cache_gib", "engine_silence_s", "shutdown_grace_s", "parse_seconds", "parse_memory_mib", "max_document_characters",
    "max_document_tokens",
    "read_hidden", "ocr", "ocr_pages", "ocr_seconds",
    "log_format", "log_level", "otlp_endpoint",
})  # fmt: skip

THREADS = 2


@dataclass(frozen=True, slots=True)
class CacheRule:
    """Rule of a collection's kept answers: they serve again from this cosine on, for so many seconds,
    within one generation."""

    threshold: float
    ttl_s: int
    generation: int


@dataclass(frozen=True, slots=True)
class Look:
    """One look into the cache. `vectors`: the question's, by which answers are compared and kept."""

    vectors: Vectors
    name: RingName
    rule: CacheRule
    hit: "KeptAnswer | None" = None
    may_keep: bool = True


class _PassageOf(msgspec.Struct, frozen=True, array_like=True):
    chunk_id: str
    score: float
    hop: int


class _AnswerBody(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The kept part of an answer. Text of documents stays in the database, quotations aside."""

    id: bytes
    at: float
    question: str
    answer: str
    finish_reason: str
    citations: tuple[Citation, ...]
    passages: tuple[_PassageOf, ...]


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """A cached answer with its passages."""

    body: _AnswerBody
    similarity: float
    passages: tuple[Passage, ...]

    def as_answer(self, question: Question, took_ms: float) -> Answer:
        """The cached answer as the last event of a stream. No token ran through the model."""
        earlier = self.body.question if question.sees_kept_question else None
        age_s = max(time.time() - self.body.at, 0.0)
        return Answer(
            id=question.id,
            text=self.body.answer,
            finish_reason=self.body.finish_reason,
            citations=self.body.citations,
            passages=self.passages,
            timings=Timings.without_model(took_ms),
            usage=NOTHING_RAN,
            cached_answer=CachedAnswer(earlier, self.similarity, age_s),
            warnings=question.warnings,
        )


class AnswerCache:
    """Looks for answers and keeps them. Every call blocks; none raises because of Redis.

    rule_of: a collection's rule, by tenant and collection; None where answers are not kept.
    chunks_of: a tenant's chunks by their ids, without those that are gone.
    index_fingerprint: names the encoder. basis: names whatever else of the service answers depend on.
    """

    def __init__(
        self,
        ring: AnswerRing,
        rule_of: Callable[[str, str], CacheRule | None],
        chunks_of: Callable[[str, list[str]], list[Chunk]],
        embed: Callable[[str], Vectors],
        index_fingerprint: str,
        basis: str,
    ) -> None:
        self._ring = ring
        self._rule_of = rule_of
        self._chunks_of = chunks_of
        self._embed = embed
        self._index_fingerprint = index_fingerprint
        self._basis = basis
        self._lock = threading.Lock()
        self.unavailable = 0

    def look(self, question: Question) -> Look | None:
        """None for a question that is never cached."""
        rule = self._rule_of(question.tenant_id, question.collection_id)
        is_comparable = bool(question.text.strip()) and len(question.text) <= MAX_QUESTION_CHARACTERS
        is_alone = not question.history and question.sampling == GREEDY and question.retrieval
        if rule is None or not question.answer_cache or not is_alone or not is_comparable:
            return None
        if is_time_bound(question.text):
            self._count(question, "skipped")
            return None
        name = RingName(question.tenant_id, question.collection_id, self._index_fingerprint, rule.generation)
        look = Look(self._embed(question.text), name, rule)
        try:
            look = dataclasses.replace(look, hit=self._find(question, look))
        except Unavailable as error:
            self._note_absence(error)
            look = dataclasses.replace(look, may_keep=False)
        metrics.answer_cache.labels("miss" if look.hit is None else "hit").inc()
        self._count(question, "hits" if look.hit else "misses")
        return look

    def keep(self, question: Question, look: Look, answer: Answer) -> None:
        """Keep an answer for later, unless the collection has changed since the look."""
        if not (look.may_keep and answer.text and answer.finish_reason in WHOLE):
            return
        body = _AnswerBody(
            id=new_record_id(),
            at=time.time(),
            question=question.text,
            answer=answer.text,
            finish_reason=answer.finish_reason,
            citations=answer.citations,
            passages=tuple(_PassageOf(p.chunk.id, p.score, p.hop) for p in answer.passages),
        )
        packed = msgspec.msgpack.encode(body)
        if len(packed) > MAX_BODY_BYTES:
            return
        record = np.zeros(1, record_type(len(look.vectors.dense)))
        record["id"], record["asked"] = np.void(body.id), np.void(self._asked(question))
        record["at"], record["vector"] = body.at, look.vectors.dense
        try:
            self._ring.put(look.name, record.tobytes(), packed, look.rule.ttl_s)
        except Unavailable as error:
            self._note_absence(error)

    def _find(self, question: Question, look: Look) -> KeptAnswer | None:
        records = self._ring.records(look.name, len(look.vectors.dense))
        fresh = records["at"] >= time.time() - look.rule.ttl_s
        slots = np.flatnonzero(fresh & (records["asked"] == np.void(self._asked(question))))
        cosines = records["vector"][slots] @ look.vectors.dense
        nearest = [i for i in np.argsort(-cosines)[:CANDIDATES] if cosines[i] >= look.rule.threshold]
        near = [(int(slots[i]), float(cosines[i])) for i in nearest]
        bodies = self._ring.bodies(look.name, [slot for slot, _ in near]) if near else []
        for (slot, similarity), packed in zip(near, bodies, strict=True):
            body = None if packed is None else unpacked(packed, _AnswerBody)
            if body and body.id == bytes(records["id"][slot]) and may_share_answer(question.text, body.question):
                chunks = {c.id: c for c in self._chunks_of(question.tenant_id, [p.chunk_id for p in body.passages])}
                # A document that was replaced since has chunks of the same ids, and other text.
                is_changed = self._rule_of(question.tenant_id, question.collection_id) != look.rule
                if is_changed or any(p.chunk_id not in chunks for p in body.passages):
                    return None
                passages = tuple(Passage(chunks[p.chunk_id], p.score, p.hop) for p in body.passages)
                return KeptAnswer(body, similarity, passages)
        return None

    def _asked(self, question: Question) -> bytes:
        """Digest of the question's options and of the service's basis: answers with another digest do not serve."""
        wishes = {
            field.name: getattr(question, field.name)
            for field in dataclasses.fields(question)
            if field.name not in _NOT_ASKED_FOR
        }
        stated = msgspec.json.encode([self._basis, wishes], order="deterministic")
        return hashlib.sha256(stated).digest()[:ID_BYTES]

    def _count(self, question: Question, outcome: str) -> None:
        try:
            self._ring.count(question.tenant_id, question.collection_id, outcome)
        except Unavailable as error:
            self._note_absence(error)

    def _note_absence(self, error: Unavailable) -> None:
        with self._lock:
            self.unavailable += 1
        log.warning(
            "the answer cache is away (%d times so far), its answers are made again: %s", self.unavailable, error
        )


class CachingAnswerer:
    """An `Answerer` with a cache before it. Every answer can be given feedback for a while, whichever it came from."""

    def __init__(
        self,
        uncached: "Answerer",
        cache: AnswerCache,
        recent: RecentAnswers,
        generation_of: Callable[[str, str], int],
    ) -> None:
        """generation_of: of a tenant's collection."""
        self._generation_of = generation_of
        self.uncached = uncached
        self._cache = cache
        self._recent = recent
        self._threads = Threads("answer-cache", THREADS)

    async def check(self, question: Question) -> None:
        await self.uncached.check(question)

    async def stream(self, question: Question) -> AsyncGenerator[Delta | Answer, None]:
        """Like `Answerer.stream`. A kept answer comes as one Delta;
        it is recorded nowhere but in the cache's counts."""
        began = time.perf_counter()
        place = question.tenant_id, question.collection_id
        # The generation first: an answer of it may show no document that is deleted afterwards.
        generation, look = await self._threads.run(lambda: (self._generation_of(*place), self._cache.look(question)))
        if look is not None and look.hit is not None:
            yield Delta(look.hit.body.answer)
            answer = look.hit.as_answer(question, (time.perf_counter() - began) * 1e3)
            await self._threads.run(self._recent.keep, question, answer, generation)
            yield answer
            return
        async with aclosing(self.uncached.stream(question)) as events:
            async for event in events:
                if isinstance(event, Answer):
                    await self._threads.run(self._recent.keep, question, event, generation)
                    if look is not None and not event.no_passages:
                        await self._threads.run(self._cache.keep, question, look, event)
                yield event


def settings_digest(settings: Settings) -> str:
    """Differs wherever a setting differs that may change an answer. A new setting counts until it is listed above."""
    counted = {
        name: str(value) for name, value in msgspec.structs.asdict(settings).items() if name not in WITHOUT_INFLUENCE
    }
    return hashlib.sha256(msgspec.json.encode(counted, order="sorted")).hexdigest()


def cache_rule(database: Database, tenant_id: str, collection_id: str) -> CacheRule | None:
    """The rule of the collection's answer cache; None where it is off, or where there is no such collection."""
    row = database.row(cache_terms(tenant_id, collection_id))
    return CacheRule(*row) if row is not None else None
