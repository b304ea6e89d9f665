"""Every part of the service, built from the settings on first use, once per process.

Imports inside properties are deliberate: torch, transformers, vLLM and some clients take seconds to import, and most
commands need only some of them.
"""
# ruff: noqa: PLC0415 - see above

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragkv.answer.load_cost import TOKENS_A_WAIT, LoadCost, Patience
from ragkv.answer.prompt import PromptBuilder, Wording
from ragkv.engine.door import EngineBehindDoor
from ragkv.engine.protocol import Engine, KVEngine
from ragkv.engine.supervisor import SupervisedEngine, SupervisionTimes
from ragkv.files_io import check_room, make_folder
from ragkv.kv.families import has_window
from ragkv.kv.format import KVFormat
from ragkv.kv.remote import ObjectStore
from ragkv.kv.rule import KVRule
from ragkv.models import (
    FINGERPRINTS,
    Fingerprints,
    LineProgress,
    encoder_folder,
    model_folder,
    public_name,
    reranker_folder,
)
from ragkv.object_store import StoreLocation
from ragkv.prefill.writer import is_for, suffices, writer_before
from ragkv.retrieve.encoder import Encoder, EncoderProcess, TextEncoder, embed_question
from ragkv.retrieve.index import Index, Vectors
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.mirror import Mirror
from ragkv.retrieve.rerank import Reranker
from ragkv.retrieve.retriever import Retriever, Searcher
from ragkv.retrieve.sparse import ANALYSIS_VERSION
from ragkv.service.access.gate import Gate
from ragkv.service.access.rate import TOO_MANY_FAILED_LOGINS, TOO_MANY_OF_A_KEY, TOO_MANY_OF_A_TENANT, RateLimit
from ragkv.service.access.sessions import Sessions
from ragkv.service.access.sign_in import Rights, SignIn, sign_in_of
from ragkv.service.answer_cache.recent import RecentAnswers
from ragkv.service.answer_cache.ring import AnswerRing, AnswerRoom
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import AppendLog
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.kv_disk import KVDisk, any_uploaded, lose_object, sizes_of_remote
from ragkv.service.base.loading import Loading
from ragkv.service.base.migrate import migrate
from ragkv.service.base.queue import Queue, make_celery
from ragkv.service.base.redis import Redis, connect, redis_url
from ragkv.service.base.tenants import CollectionRef, ensure_collection, tenant_ids, tenant_secret
from ragkv.service.collections.statements import generation_of
from ragkv.service.data_sources.location import allowed_locations
from ragkv.service.documents.indexed import DatabaseSource, MadeWith
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.jobs import Backlog
from ragkv.service.documents.removal import Removal
from ragkv.service.documents.requeue import refresh_outdated
from ragkv.service.documents.statements import searchable_documents
from ragkv.service.kv_admin.rule_statements import awaiting_kv, rule_of_collection
from ragkv.service.observe.heartbeats import Heartbeats
from ragkv.service.observe.worker_counters import WorkerCounters
from ragkv.service.questions.journal import KVUse, record_answer
from ragkv.settings import Settings
from ragkv.stitch.policies import UPPER, Choice
from ragkv.threads import Threads
from ragkv.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ragkv.answer.planner import Planner
    from ragkv.answer.promote import Promoter
    from ragkv.answer.recompute import Recomputing
    from ragkv.engine.remote import RemoteEngine
    from ragkv.kv.key import KeyMaker
    from ragkv.kv.layout import Layout
    from ragkv.kv.store import KVStore
    from ragkv.retrieve.qdrant import QdrantIndex
    from ragkv.service.access.provider import Provider
    from ragkv.service.answer_cache.cache import AnswerCache, CachingAnswerer

LOGINS_PER_MINUTE = 10
RETRIEVAL_THREADS = 2
EMBEDDED_KEPT = 256


class Parts:
    """The service's parts. Close it when done; the engine is started and stopped by its user."""

    def __init__(self, settings: Settings, engine: Engine | None = None, *, encoder_apart: bool = False) -> None:
        """`encoder_apart`: questions are encoded in a process of its own. Raises Rejected for settings of sign-in or
        data sources that cannot work."""
        self.settings = settings
        sign_in_of(settings)
        allowed_locations(settings.data_sources_allowed)
        self._encoder_apart = encoder_apart
        self._given_engine = engine
        self._keys: dict[str, KeyMaker] = {}

    def prepare(self, progress: LineProgress = lambda line: None) -> None:
        """Make what must be there before anything else runs: folders, models, the newest schema, the default scope.

        Any number of processes may do it at once. Raises Rejected for models that cannot be used, with the reason,
        and Unavailable if the database is away.
        """
        make_folder(self.settings.data_dir)
        model_folder(self.settings, progress)
        # A model that cannot be stitched, and layers it lacks, are refused here, before anything is kept.
        self.choice  # noqa: B018 - see above
        self.prepare_database()

    def check_answering(self) -> None:
        """Check the settings that only answers need, before a service starts with them: no model is loaded.

        Raises Rejected for an engine or a reranker that cannot be used.
        """
        self.engine  # noqa: B018 - raises
        self.reranker_folder  # noqa: B018 - raises

    def prepare_database(self) -> None:
        """The newest schema and the default scope."""
        migrate(self.settings.database)
        ensure_collection(self.database)

    def refresh_outdated(self) -> int:
        """Mark what was made with other models, settings or terms to be made again. Returns how many documents."""
        fingerprints = (self.index_fingerprint, self.encoder_fingerprint, self.earlier_index_fingerprints)
        return refresh_outdated(self.database, self.settings, *fingerprints, self.kv_fingerprint)

    def close(self) -> None:
        for name in ("question_encoder", "kv_use", "database", "redis", "qdrant"):
            part = self.__dict__.pop(name, None)
            if part is not None:
                part.close()

    @cached_property
    def default_collection(self) -> CollectionRef:
        """The default tenant's default collection."""
        return ensure_collection(self.database)

    @cached_property
    def index_fingerprint(self) -> str:
        """Names the tokenizer, encoder, chunk size and analysis of terms that chunks and their vectors are made
        with."""
        return _digest(*self._read_with, ANALYSIS_VERSION)

    @cached_property
    def earlier_index_fingerprints(self) -> tuple[str, ...]:
        """`index_fingerprint` as earlier versions made it with the same models and settings."""
        settings = self.settings
        of_0_1_0 = _digest(settings.model, settings.encoder, settings.chunk_tokens)  # of names alone
        analyses = (_digest(*self._read_with, version) for version in range(ANALYSIS_VERSION))
        return of_0_1_0, _digest(*self._read_with), *analyses

    @property
    def _read_with(self) -> tuple[object, ...]:
        return self.fingerprints.tokenizer(self.model_folder), self.encoder_fingerprint, self.settings.chunk_tokens

    @cached_property
    def encoder_fingerprint(self) -> str:
        """Names the encoder: vectors of another cannot be compared with its own."""
        return self.fingerprints.encoder(self.encoder_folder)

    def kv_fingerprint(self, rule: KVRule) -> str:
        """Names the model, writer, tokenizer, dtype, format, compression and instructions that KV is made with:
        the tokenizer decides what the prefix says."""
        from ragkv.kv.layout import LAYOUT_VERSION

        tokenizer = self.fingerprints.tokenizer(self.model_folder)
        written = (self.writer_fingerprint,) if self.writer_fingerprint else ()
        formatted = () if rule.format is KVFormat.BF16 else (rule.format,)
        shortened = () if rule.compression is None else (rule.compression.name,)
        return _digest(
            self.model_fingerprint, tokenizer, self.settings.dtype, self.settings.instructions, LAYOUT_VERSION,
            *written, *formatted, *shortened,
        )  # fmt: skip

    @cached_property
    def writer_fingerprint(self) -> str:
        """Names the adapter that chunks are written with, empty for the plain model: also where the one in the folder
        is for another model. Another one counts after a restart."""
        folder = self.settings.writer_dir
        adapter = self.fingerprints.adapter(folder)
        return adapter if adapter and is_for(folder, self.model_fingerprint) else ""

    @cached_property
    def writer_before(self) -> str | None:
        """Names the adapter before this one, whose KV may still be there; empty for the plain model, None for none."""
        return writer_before(self.settings.writer_dir, self.writer_fingerprint)

    @cached_property
    def database(self) -> Database:
        return Database(self.settings.database)

    @cached_property
    def redis(self) -> Redis:
        return connect(self.settings)

    @cached_property
    def append_log(self) -> AppendLog | None:
        """The log of the embedded Redis; None for a configured one, whose log is its operator's."""
        return AppendLog(self.redis) if self.settings.redis_url is None else None

    @cached_property
    def rate_limit(self) -> RateLimit:
        return self._limit(self.settings.requests_per_minute, TOO_MANY_OF_A_KEY)

    @cached_property
    def tenant_rate_limit(self) -> RateLimit:
        """The limit on all keys of a tenant together: more keys do not make more requests."""
        return self._limit(self.settings.tenant_requests_per_minute, TOO_MANY_OF_A_TENANT)

    def _limit(self, per_minute: int, refusal: str) -> RateLimit:
        """An embedded Redis that stops is no reason to refuse the one machine it serves."""
        return RateLimit(self.redis, per_minute, fails_open=self.settings.redis_url is None, refusal=refusal)

    @cached_property
    def worker_counters(self) -> WorkerCounters:
        return WorkerCounters(self.redis)

    @cached_property
    def heartbeats(self) -> Heartbeats:
        return Heartbeats(self.redis)

    @cached_property
    def backlog(self) -> Backlog:
        return Backlog(self.database)

    @property
    def sign_in(self) -> SignIn | None:
        """Sign-in by OpenID Connect, if there is a provider."""
        return sign_in_of(self.settings)

    @cached_property
    def gate(self) -> Gate:
        return Gate(
            self.database.brief,
            self.rate_limit,
            self.default_collection.tenant_id,
            open_without_keys=self.settings.on_loopback and self.sign_in is None,
            tenant_limit=self.tenant_rate_limit,
            rights=self.rights,
        )

    @cached_property
    def rights(self) -> Rights | None:
        """Rights of people who signed in, if there is a provider. Raises Rejected for tenants that do not exist."""
        return None if self.sign_in is None else Rights.of(self.sign_in.grants, self.database.brief)

    @cached_property
    def provider(self) -> "Provider | None":
        """The OpenID Connect provider, if there is one."""
        if self.sign_in is None:
            return None
        from ragkv.service.access.provider import Provider

        return Provider(self.sign_in)

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(self.redis)

    @cached_property
    def login_limit(self) -> RateLimit:
        """Rate limit of failed logins from one address."""
        return self._limit(LOGINS_PER_MINUTE, TOO_MANY_FAILED_LOGINS)

    @cached_property
    def queue(self) -> Queue:
        return Queue(make_celery(redis_url(self.settings)))

    @cached_property
    def files(self) -> FileStore:
        return FileStore(self.settings.files_dir, self.settings.min_free_bytes)

    @property
    def intake(self) -> Intake:
        return Intake(self.database, self.files, self.settings, self.queue, lambda: self.index_fingerprint)

    @property
    def removal(self) -> Removal:
        return Removal(
            self.database,
            self.files,
            self.kv_store,
            self.answer_ring,
            self.recent_answers,
            self.append_log,
            lambda: self.server_index,
            lambda: self.__dict__.get("retriever"),
        )

    @cached_property
    def kv_store(self) -> "KVStore":
        from ragkv.kv.store import KVStore

        return KVStore(self.settings.kv_dir, self.kv_remote)

    @cached_property
    def kv_remote(self) -> ObjectStore | None:
        """The object store behind the folder of KV, if one is configured. Raises Rejected for settings that name
        none."""
        settings = self.settings
        if settings.kv_remote is None:
            return None
        place = StoreLocation(
            settings.kv_remote, settings.kv_remote_endpoint, settings.kv_remote_region, settings.kv_remote_access_key,
            settings.kv_remote_secret_key,
        )  # fmt: skip
        return ObjectStore(
            place,
            lambda: _digest("service", self.default_collection.tenant_id),
            lambda: any_uploaded(self.database),
        )

    @cached_property
    def kv_disk(self) -> KVDisk:
        """The folder of KV as a cache of the object store."""
        return KVDisk(self.kv_store, self.database, self.settings, self.prefixes)

    @cached_property
    def load_cost(self) -> LoadCost:
        return LoadCost()

    @cached_property
    def promoter(self) -> "Promoter | None":
        """Brings KV from the object store to disk for questions, if there is an object store."""
        if self.kv_remote is None:
            return None
        from ragkv.answer.promote import Promoter, RemoteIndex

        remote_index = RemoteIndex(partial(lose_object, self.database), self.kv_disk.room)
        wait_s = self.settings.kv_wait_ms / 1e3
        patience = Patience(wait_s, wait_s / TOKENS_A_WAIT)
        promoter = Promoter(self.kv_store, self.kv_remote, remote_index, self.load_cost, patience)
        self.kv_disk.dropped = promoter.dropped
        return promoter

    @cached_property
    def model_folder(self) -> Path:
        return model_folder(self.settings)

    @cached_property
    def layout(self) -> "Layout":
        from ragkv.kv.layout import layout_of, read_config

        return layout_of(read_config(self.model_folder), self.settings.dtype, self.settings.max_model_len)

    @cached_property
    def choice(self) -> Choice:
        """The layers that select what to recompute. Raises Rejected for layers that the model lacks."""
        choice = Choice.of(self.settings.choosing_layers or UPPER)
        choice.layers_of(self.layout.layers)
        return choice

    @cached_property
    def encoder_folder(self) -> Path:
        return encoder_folder(self.settings)

    @cached_property
    def fingerprints(self) -> Fingerprints:
        return Fingerprints(self.settings.data_dir / FINGERPRINTS)

    @cached_property
    def model_fingerprint(self) -> str:
        return self.fingerprints.weights(self.model_folder)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.model_folder)

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder.load(self.encoder_folder)

    @cached_property
    def question_encoder(self) -> TextEncoder:
        if not self._encoder_apart:
            return self.encoder
        return EncoderProcess(self.encoder_folder)

    @cached_property
    def embed(self) -> Callable[[str], Vectors]:
        """Vectors of a question, of which the latest are kept: the answer cache and the search embed the same text."""
        return lru_cache(EMBEDDED_KEPT)(partial(embed_question, self.question_encoder))

    @cached_property
    def reranker_folder(self) -> Path | None:
        return reranker_folder(self.settings)

    @cached_property
    def reranker(self) -> Reranker | None:
        folder = self.reranker_folder
        if folder is None:
            return None
        from transformers.utils import logging

        logging.disable_progress_bar()
        return Reranker.load(folder)

    @cached_property
    def prompts(self) -> PromptBuilder:
        settings = self.settings
        wording = Wording(settings.instructions, settings.question_format, settings.answer_start)
        return PromptBuilder(self.tokenizer, wording, settings.max_model_len)

    def kv_keys_of(self, tenant_id: str, collection_id: str) -> "KeyMaker":
        """The KV keys of a tenant as questions to a collection look it up: by the compression of its rule.
        Raises NotFound."""
        own = self.database.row(rule_of_collection(collection_id))
        rule = self.settings.kv_rule
        compression = (rule.in_place_of(*own) if own else rule).compression
        keys = self.keys_of(tenant_id)
        return keys if compression is None else replace(keys, compression=compression)

    def keys_of(self, tenant_id: str) -> "KeyMaker":
        """The KV keys of a tenant, for KV of all tokens. Raises NotFound."""
        if tenant_id not in self._keys:
            from ragkv.kv.key import KeyMaker

            secret = tenant_secret(tenant_id, self.database)
            self._keys[tenant_id] = KeyMaker(
                secret,
                self.model_fingerprint,
                str(self.layout.dtype),
                self.prompts.prefix_ids,
                self.writer_fingerprint,
                self.writer_before,
                self.settings.kv_format,
            )
        return self._keys[tenant_id]

    def prefixes(self) -> set[str]:
        """The KV keys of all tenants' prefixes, which no entry and no chunk names."""
        tenants = self.database.scalars(tenant_ids())
        return {self.keys_of(tenant_id).prefix() for tenant_id in tenants}

    @cached_property
    def source(self) -> DatabaseSource:
        present = MadeWith(self.index_fingerprint, self.encoder_fingerprint)
        return DatabaseSource(self.database, present, lambda texts: self.tokenizer.encode_batch(texts))  # noqa: PLW0108 - loaded when needed

    @cached_property
    def qdrant(self) -> "QdrantIndex | None":
        """The connection to the Qdrant server, if one is configured: for those who write anew what it lost."""
        if self.settings.qdrant_url is None:
            return None
        from ragkv.retrieve.qdrant import QdrantIndex

        return QdrantIndex.connect(self.settings.qdrant_url, self.settings.qdrant_api_key)

    @cached_property
    def server_index(self) -> "QdrantIndex | None":
        """The Qdrant server's index, if one is configured; otherwise searches mirror the database in memory. Raises
        Unavailable for a server that lost its collection: made anew here, searches would miss what it held."""
        index = self.qdrant
        if index is None:
            return None
        if self.database.row(searchable_documents().limit(1)) is not None:
            index.ping()
        index.ensure(self.question_encoder.dim)
        return index

    @cached_property
    def retriever(self) -> Retriever:
        index: Index | None = self.server_index
        mirror = None
        if index is None:
            index = MemoryIndex()
            index.ensure(self.question_encoder.dim)
            mirror = Mirror(index, self.source)
        return Retriever(
            self.embed, index, self.source, mirror, self.reranker, finds_outdated=self.settings.answer_outdated
        )

    @cached_property
    def searcher(self) -> Searcher:
        """The searcher that questions use."""
        return Searcher(self.retriever, self.retrieval)

    @cached_property
    def retrieval(self) -> Threads:
        """Threads that search: few, for the encoder serves one at a time, and apart from all that needs no encoder."""
        return Threads("retrieval", RETRIEVAL_THREADS)

    @cached_property
    def embedding(self) -> Threads:
        """A thread for embeddings that are asked for: the encoder serves a search after one piece of them at most."""
        return Threads("embedding", 1)

    @cached_property
    def engine(self) -> Engine:
        if self._given_engine is not None:
            return self._given_engine
        if self.settings.engine_url is not None:
            return self._engine_at(self.settings.engine_url)
        from ragkv.engine.launch import check_version
        from ragkv.engine.local import LocalEngine
        from ragkv.kv.layout import Shard

        check_version()
        Shard(self.layout, size=self.settings.tensor_parallel_size)  # raises Unsupported
        make = partial(LocalEngine, self.settings, self.model_folder, self.layout)
        return SupervisedEngine(make, SupervisionTimes(silence=self.settings.engine_silence_s))

    @cached_property
    def prefill_engine(self) -> KVEngine:
        """The engine that a worker has compute KV: RAGKV_INGEST_ENGINE_URL's, RAGKV_ENGINE_URL's, or that of the
        service on this machine."""
        if self.settings.ingest_engine_url is not None:
            return self._engine_at(self.settings.ingest_engine_url)
        has_url = self.settings.engine_url is not None
        return self.engine if has_url else EngineBehindDoor(self.settings.engine_socket, self.settings.engine_silence_s)

    def _engine_at(self, url: str) -> "RemoteEngine":
        from ragkv.engine.remote import RemoteEngine

        settings = self.settings
        window, silence_s = settings.max_model_len, settings.engine_silence_s
        return RemoteEngine(url, settings.engine_api_key, window, silence_s, lambda: self.model_fingerprint)

    @cached_property
    def planner(self) -> "Planner":
        from ragkv.answer.planner import Planner
        from ragkv.kv.layout import read_config

        remote_sizes = None if self.kv_remote is None else partial(sizes_of_remote, self.database)
        return Planner(self.kv_store, self.choice, remote_sizes, has_window=has_window(read_config(self.model_folder)))

    @cached_property
    def recomputing(self) -> "Recomputing":
        from ragkv.answer.recompute import Recomputing

        return Recomputing(self.settings, bool(self.writer_fingerprint) and suffices(self.settings.writer_dir))

    @cached_property
    def answerer(self) -> "CachingAnswerer":
        from ragkv.answer.incoming import IncomingKV
        from ragkv.answer.service import Answerer
        from ragkv.service.answer_cache.cache import CachingAnswerer

        model = public_name(self.settings)
        journal = partial(record_answer, database=self.database, kv_use=self.kv_use, model=model)
        answering = (self.recomputing, self.searcher, self.prompts, self.engine, self.planner)
        incoming = IncomingKV(self.kv_store, self.load_cost, self.engine, self.awaiting_kv, self.promoter)
        uncached = Answerer(*answering, self.kv_keys_of, journal, incoming)
        generation = partial(generation_of, self.database)
        return CachingAnswerer(uncached, self.answer_cache, self.recent_answers, generation)

    def awaiting_kv(self, chunk_ids: Sequence[str]) -> set[str]:
        """See `ragkv.answer.incoming.Awaiting`."""
        check_room(self.settings.kv_dir, self.settings.min_free_bytes)
        return set(self.database.brief.scalars(awaiting_kv(chunk_ids, self.settings.kv_rule)))

    @cached_property
    def loading(self) -> Loading:
        """Loading of everything that questions need, for callers in the event loop, which it would hold up for
        seconds."""
        return Loading(lambda: (self.engine, self.answerer, self.keys_of(self.default_collection.tenant_id)))

    async def loaded(self) -> "Parts":
        """These parts once `answerer` and `searcher` are loaded, for the event loop. Raises Unavailable, see
        `Loading.finished`."""
        await self.loading.finished()
        return self

    @cached_property
    def recent_answers(self) -> RecentAnswers:
        return RecentAnswers(self.redis)

    @cached_property
    def kv_use(self) -> KVUse:
        return KVUse(self.database, self.settings.eviction_half_life_s)

    @cached_property
    def answer_ring(self) -> AnswerRing:
        room = AnswerRoom(self.settings.max_tenant_answer_bytes, self.settings.max_answer_bytes)
        return AnswerRing(self.redis, room)

    @cached_property
    def answer_digest(self) -> str:
        """Differs wherever settings, files of the data folder that stand in for settings, or the bytes of the reranker
        may change an answer. Model, writer and index have fingerprints of their own."""
        from ragkv.service.answer_cache.cache import settings_digest

        ranked = () if self.reranker_folder is None else (self.fingerprints.encoder(self.reranker_folder),)
        return _digest(settings_digest(self.settings), self.choice, self.recomputing.writer_suffices, *ranked)

    @cached_property
    def answer_cache(self) -> "AnswerCache":
        from ragkv.service.answer_cache.cache import AnswerCache, cache_rule

        rule_of = partial(cache_rule, self.database)
        basis = _digest(self.model_fingerprint, self.kv_fingerprint(self.settings.kv_rule), self.answer_digest)
        return AnswerCache(self.answer_ring, rule_of, self.source.chunks, self.embed, self.index_fingerprint, basis)


def _digest(*values: object) -> str:
    return hashlib.sha256(msgspec.json.encode([str(value) for value in values])).hexdigest()
