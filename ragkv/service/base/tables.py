"""The tables, and their base class: names of constraints, times in UTC, ids. Rows stay in `ragkv` and `ingest`: the API
gets views."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Enum,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy import text as sql_text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from ragkv.ids import new_id, utc_now
from ragkv.service.base.status import JobStatus, Status

ID = String(64)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite keeps no time zone, so it is dropped on the way in and put back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        assert value.tzinfo is not None, "moments carry their time zone"
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return value
        return value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """Constraints get predictable names, so that a migration can drop them on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {datetime: UtcDateTime}


def _by_value(kind: type[StrEnum]) -> Enum:
    """A text column that holds the values, so that a new one needs no migration."""
    return Enum(kind, native_enum=False, length=20, values_callable=lambda members: [m.value for m in members])


def _index_where(condition: str, name: str, column: str) -> Index:
    """An index of the rows for which the condition holds."""
    return Index(name, column, postgresql_where=sql_text(condition), sqlite_where=sql_text(condition))


class TenantRow(Base):
    """The owner of collections. `secret` keys the names of its KV;
    `served_at`, `kv_served_at`: the last time a worker took a document to be read, and one that only lacked KV.
    `question_log_days`: days for which texts of questions are kept, 0 for none; None where the service's setting
    applies."""

    __tablename__ = "tenants"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    secret: Mapped[bytes] = mapped_column(LargeBinary(32))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    served_at: Mapped[datetime | None]
    kv_served_at: Mapped[datetime | None]
    question_log_days: Mapped[int | None]


class ApiKeyRow(Base):
    """A tenant's API key. Only the SHA-256 of its secret is kept; `scopes` are names between spaces.

    A revoked key stays for a year, the newest of all keys for ever: once there was a key, requests without one are
    refused. `created_by` and `revoked_by` are the ids of the keys that asked for it; None: a person did, no key was
    required, or it was done on the command line. `created_by_person`: who signed in and created the key, or the first
    of the keys that it goes back to.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[bytes] = mapped_column(LargeBinary(32))
    scopes: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    created_by: Mapped[str | None] = mapped_column(ID)
    revoked_by: Mapped[str | None] = mapped_column(ID)
    created_by_person: Mapped[str | None] = mapped_column(String(200))
    revoked_by_person: Mapped[str | None] = mapped_column(String(200))


class CollectionRow(Base):
    """A named set of documents.

    generation: grows with every change of its documents that an answer could show.
    marked_changes: counts those of these that wrote no chunks, or left the generation in `changed_in` of the documents
        whose chunks they wrote.
    cache_threshold, cache_ttl_s: of the answer cache, a cosine and seconds.
    kv_pinned: its KV is evicted only by hand.
    kv_format, kv_when, kv_uses, kv_write, kv_compress, kv_keep: its rule for KV; None where the service's applies.
    """

    __tablename__ = "collections"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    generation: Mapped[int] = mapped_column(BigInteger, default=0, server_default=sql_text("0"))
    marked_changes: Mapped[int] = mapped_column(BigInteger, default=0, server_default=sql_text("0"))
    cache_answers: Mapped[bool] = mapped_column(default=False, server_default=false())
    cache_threshold: Mapped[float] = mapped_column(default=0.95, server_default=sql_text("0.95"))
    cache_ttl_s: Mapped[int] = mapped_column(default=86400, server_default=sql_text("86400"))
    kv_pinned: Mapped[bool] = mapped_column(default=False, server_default=false())
    kv_format: Mapped[str | None] = mapped_column(String(10))
    kv_when: Mapped[str | None] = mapped_column(String(10))
    kv_uses: Mapped[int | None]
    kv_write: Mapped[str | None] = mapped_column(String(10))
    kv_compress: Mapped[str | None] = mapped_column(String(10))
    kv_keep: Mapped[float | None]


class DocumentRow(Base):
    """An uploaded file, by content hash. A worker may write to it only while it holds the lease.

    labels: its metadata, an object of the owner's. num_bytes: of content.
    hidden_words, encoded_chars: left out of its text: words that its author hid, and base64.
    progress_done, progress_total: tokens of the present `stage`, or pages.
    attempts, outages: tries, and failures in a row that were not its own fault; after one, none before `retry_at`.
    version: counts how often its chunks were written; an index that mirrors the database compares it.
    changed_in: the collection's generation that began with that, or with the last change of `is_replaced`.
    index_fingerprint, kv_fingerprint: names of the models and settings of its chunks, and of their KV.
    encoder_fingerprint: of the encoder of its vectors; empty if that was not recorded.
    data_source_id: of the data source that it is kept in sync with, which may be gone; None if it was uploaded.
    origin: the place of its file there.
    is_attachment: it came as an attachment of mails alone, and goes with the last of them.
    was_uploaded: to the collection itself; it stays when files of its bytes are detached.
    suffix: of its file's name, where a rename left none that is known; empty otherwise.
    is_replaced: another file has replaced the one that its chunks are of.
    earlier_sha256, earlier_num_bytes, earlier_name: that one; None if it is lost.
    kv_evicted: some of its KV was removed, or never kept: it is searchable, not ready, until a rebuild is requested or
        its chunks were used often enough for the rule.
    """

    __tablename__ = "documents"
    __table_args__ = (
        UniqueConstraint("collection_id", "sha256"),
        Index(None, "status", "lease_until"),
        Index(None, "tenant_id", "status", "kv_evicted", "created_at"),
        Index(None, "collection_id", "created_at"),
        Index(None, "collection_id", "updated_at"),
        Index(None, "collection_id", "changed_in"),
        Index(None, "tenant_id", "created_at"),
        Index(None, "tenant_id", "sha256", "num_bytes"),
        _index_where("is_attachment", "ix_documents_attachments", "collection_id"),
        _index_where("earlier_sha256 IS NOT NULL", "ix_documents_earlier_sha256", "earlier_sha256"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    name: Mapped[str] = mapped_column(Text)
    suffix: Mapped[str] = mapped_column(Text, default="", server_default=sql_text("''"))
    title: Mapped[str] = mapped_column(Text, default="")
    media_type: Mapped[str] = mapped_column(String(200), default="")
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    labels: Mapped[dict[str, Any]] = mapped_column("metadata", JSON, default=dict, server_default=sql_text("'{}'"))
    status: Mapped[Status] = mapped_column(_by_value(Status), default=Status.ACCEPTED)
    error: Mapped[str | None] = mapped_column(Text)
    stage: Mapped[str] = mapped_column(String(20), default="")
    progress_done: Mapped[int] = mapped_column(default=0)
    progress_total: Mapped[int] = mapped_column(default=0)
    num_chunks: Mapped[int] = mapped_column(default=0)
    num_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    hidden_words: Mapped[int] = mapped_column(BigInteger, default=0, server_default=sql_text("0"))
    encoded_chars: Mapped[int] = mapped_column(BigInteger, default=0, server_default=sql_text("0"))
    attempts: Mapped[int] = mapped_column(default=0)
    outages: Mapped[int] = mapped_column(default=0, server_default=sql_text("0"))
    retry_at: Mapped[datetime | None]
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[datetime | None]
    version: Mapped[int] = mapped_column(default=0)
    changed_in: Mapped[int] = mapped_column(BigInteger, default=0, server_default=sql_text("0"))
    index_fingerprint: Mapped[str] = mapped_column("recipe", String(64), default="")
    kv_fingerprint: Mapped[str] = mapped_column("kv_recipe", String(64), default="")
    encoder_fingerprint: Mapped[str] = mapped_column(String(64), default="", server_default=sql_text("''"))
    kv_pinned: Mapped[bool] = mapped_column(default=False, server_default=false())
    kv_evicted: Mapped[bool] = mapped_column(default=False, server_default=false())
    data_source_id: Mapped[str | None] = mapped_column(ID)
    origin: Mapped[str | None] = mapped_column(Text)
    is_attachment: Mapped[bool] = mapped_column(default=False, server_default=false())
    was_uploaded: Mapped[bool] = mapped_column(default=False, server_default=false())
    is_replaced: Mapped[bool] = mapped_column(default=False, server_default=false())
    earlier_sha256: Mapped[str | None] = mapped_column(String(64))
    earlier_num_bytes: Mapped[int | None] = mapped_column(BigInteger)
    earlier_name: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)


class MailAttachmentRow(Base):
    """A file attached to a mail. No `document_id`: never made, for the reason in `error`; deleted, if there is none."""

    __tablename__ = "mail_attachments"

    mail_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    ordinal: Mapped[int]
    name: Mapped[str] = mapped_column(Text)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    document_id: Mapped[str | None] = mapped_column(ForeignKey("documents.id", ondelete="SET NULL"), index=True)
    error: Mapped[str | None] = mapped_column(Text)


class DocumentLabelRow(Base):
    """One value of a document's metadata, as `ragkv.service.documents.metadata` writes it: what filters look for."""

    __tablename__ = "document_labels"
    __table_args__ = (Index(None, "key", "value"),)

    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(100), primary_key=True)
    value: Mapped[str] = mapped_column(String(250), primary_key=True)


class ChunkRow(Base):
    """A chunk and its vectors. Arrays are little-endian bytes: ids and page breaks uint32, dense and values float32,
    indices uint32.

    page_breaks: None if it was written before they were recorded.
    kv_uses: answers that used it while no KV of it was kept, since its KV was last made.
    kv_warm_until: `warm_until` of its KV when that was evicted, and of uses since.
    """

    __tablename__ = "chunks"
    __table_args__ = (
        UniqueConstraint("document_id", "ordinal"),
        _index_where("kv_uses > 0", "ix_chunks_kv_uses", "kv_uses"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"))
    ordinal: Mapped[int]
    title: Mapped[str] = mapped_column(Text)
    text: Mapped[str] = mapped_column(Text)
    start: Mapped[int]
    end: Mapped[int]
    page: Mapped[int | None]
    token_ids: Mapped[bytes] = mapped_column(LargeBinary)
    page_breaks: Mapped[bytes | None] = mapped_column(LargeBinary)
    kv_key: Mapped[str | None] = mapped_column(String(64), index=True)
    kv_uses: Mapped[int] = mapped_column(default=0, server_default=sql_text("0"))
    kv_warm_until: Mapped[float] = mapped_column(default=0.0, server_default=sql_text("0"))
    dense: Mapped[bytes] = mapped_column(LargeBinary)
    sparse_indices: Mapped[bytes] = mapped_column(LargeBinary)
    sparse_values: Mapped[bytes] = mapped_column(LargeBinary)


class KVEntryRow(Base):
    """One KV file, named by its key. `tier`: "disk" if it lies on a disk alone, "remote" if the object store has a
    copy. `warm_until`: see `ragkv.kv.eviction.Entry`."""

    __tablename__ = "kv_entries"
    __table_args__ = (Index("ix_kv_entries_tier_key", "tier", "key"),)

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    num_tokens: Mapped[int]
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    tier: Mapped[str] = mapped_column(String(20), default="disk")
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    last_used_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)
    warm_until: Mapped[float] = mapped_column(default=lambda: utc_now().timestamp(), server_default=sql_text("0"))


class JobRow(Base):
    """A piece of queued work, kept for the record. `cause`: the request it came from, as headers.

    `attempts` that ended with the loss of their worker.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "tenant_id", "created_at"),
        Index(None, "tenant_id", "status", "created_at"),
        Index(None, "updated_at"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(20))
    status: Mapped[JobStatus] = mapped_column(_by_value(JobStatus), default=JobStatus.QUEUED)
    attempts: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None] = mapped_column(Text)
    cause: Mapped[dict[str, str] | None] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)


class QuestionRow(Base):
    """A question that was answered, with what it took: milliseconds and tokens, as in `ragkv.answer.question`.

    text: empty where the tenant does not keep it, or not any more.
    """

    __tablename__ = "questions"
    __table_args__ = (Index(None, "tenant_id", "created_at"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    text: Mapped[str] = mapped_column(Text)
    mode: Mapped[str] = mapped_column(String(20))
    policy: Mapped[str | None] = mapped_column(String(20))
    recompute_ratio: Mapped[float | None]
    finish_reason: Mapped[str] = mapped_column(String(40))
    retrieve_ms: Mapped[float]
    plan_ms: Mapped[float]
    ttft_ms: Mapped[float]
    engine_ttft_ms: Mapped[float]
    kv_load_ms: Mapped[float]
    recompute_ms: Mapped[float]
    total_ms: Mapped[float]
    prompt_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    stitched_tokens: Mapped[int]
    recomputed_tokens: Mapped[int]
    computed_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    failed_chunks: Mapped[int]
    disk_tokens: Mapped[int] = mapped_column(default=0)  # of the stitched ones, from files that had to be read
    remote_tokens: Mapped[int] = mapped_column(default=0)  # of the stitched ones, from the object store
    model: Mapped[str | None] = mapped_column(String(200))  # None: asked before this was recorded
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)


class WebhookRow(Base):
    """A receiver of messages about a tenant's documents, or those of one collection. `secret` signs them."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    collection_id: Mapped[str | None] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    url: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class WebhookDeliveryRow(Base):
    """One message of a webhook: `body` as it is sent, and the last of the `attempts`; the next is due at `next_at`,
    while it is pending. It goes with its document."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (Index(None, "webhook_id", "created_at"), Index(None, "status", "next_at"))

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    document_id: Mapped[str] = mapped_column(ID, index=True)
    event: Mapped[str] = mapped_column(String(40))
    body: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(20), default="pending")
    attempts: Mapped[int] = mapped_column(default=0)
    code: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    attempted_at: Mapped[datetime | None]
    next_at: Mapped[datetime]


class AuditRow(Base):
    """One change: what was done to a `resource`, `within` another, by which key or person, from where. Never changed:
    see the migration's trigger."""

    __tablename__ = "audit_events"
    __table_args__ = (
        Index(None, "at"),
        Index(None, "tenant_id", "at"),
        Index(None, "tenant_id", "thing"),
        Index(None, "tenant_id", "within"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    at: Mapped[datetime] = mapped_column(default=utc_now)
    key_id: Mapped[str | None] = mapped_column(ID)
    action: Mapped[str] = mapped_column(String(100))
    route: Mapped[str] = mapped_column(String(200))
    resource: Mapped[str | None] = mapped_column("thing", String(200))
    within: Mapped[str | None] = mapped_column(String(200))
    client: Mapped[str] = mapped_column(String(200))
    request_id: Mapped[str | None] = mapped_column(String(100))
    person: Mapped[str | None] = mapped_column(String(200))


class DeletionRow(Base):
    """A row that was deleted on request: its table and its id there."""

    __tablename__ = "deletions"

    kind: Mapped[str] = mapped_column(String(40), primary_key=True)
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=utc_now, index=True)


class FeedbackRow(Base):
    """Feedback on an answer, with what an evaluation needs of it. It outlives the question's record.

    num_passages: of the answer's prompt; those of documents deleted since are not in `feedback_passages`.
    """

    __tablename__ = "feedback"
    __table_args__ = (Index(None, "tenant_id", "asked_at"),)

    answer_id: Mapped[str] = mapped_column(ID, primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    question: Mapped[str] = mapped_column(Text)
    answer: Mapped[str] = mapped_column(Text)
    num_passages: Mapped[int]
    rating: Mapped[str] = mapped_column(String(10))
    correction: Mapped[str | None] = mapped_column(Text)
    comment: Mapped[str | None] = mapped_column(Text)
    asked_at: Mapped[datetime]
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)


class FeedbackPassageRow(Base):
    """A passage of the prompt of an answer with feedback, as it was. It goes with its document."""

    __tablename__ = "feedback_passages"

    answer_id: Mapped[str] = mapped_column(ForeignKey("feedback.answer_id", ondelete="CASCADE"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), index=True)
    title: Mapped[str] = mapped_column(Text)
    text: Mapped[str] = mapped_column(Text)


class EvaluationRow(Base):
    """A run of an evaluation over questions of a collection. While it is open, its `holder` measures the next question
    until `leased_until`; `attempts` count how often that was begun. `stepped_at`: when a question of it was last begun.

    `settings`: those it runs with, once it has begun; `figures`: once it has ended.
    """

    __tablename__ = "evaluations"
    __table_args__ = (Index(None, "tenant_id", "created_at"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(20))
    source: Mapped[str] = mapped_column(String(20))
    state: Mapped[str] = mapped_column(String(20), index=True)
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    attempts: Mapped[int] = mapped_column(default=0)
    holder: Mapped[str | None] = mapped_column(ID)
    leased_until: Mapped[datetime | None]
    stepped_at: Mapped[datetime] = mapped_column(default=utc_now)
    settings: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    figures: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    ended_at: Mapped[datetime | None]


class EvaluationQuestionRow(Base):
    """A question of a run and its outcome: figures, without any text. `question_id`: of the log, which holds the text;
    None for one that was `given` with the run. `answers`: the texts to compare, forgotten with the question."""

    __tablename__ = "evaluation_questions"

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    question_id: Mapped[str | None] = mapped_column(ID)
    given: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    outcome: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    answers: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[str | None] = mapped_column(Text)


class DataSourceRow(Base):
    """A folder or a prefix of an object store that a collection is kept in sync with. A process syncs it only while it
    holds the lease.

    interval_minutes: from one sync to the next; 0: only on request.
    watch: whether a sync is due at once when the folder changes; watch_error: why no worker can tell.
    next_at: when the next sync is due; None: none is. It stays in the past during a sync, so that another goes on if it
        is lost.
    syncs: counts those that began. `listed`, `skipped`: files of the last one, and those that ingestion does not read.
    error: why the last one did not end well.
    held_deletions: deletions that wait to be confirmed; confirmed_deletions: how many may be made.
    """

    __tablename__ = "data_sources"
    __table_args__ = (UniqueConstraint("collection_id", "location"), Index(None, "next_at"))

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    location: Mapped[str] = mapped_column(String(1000))
    interval_minutes: Mapped[int]
    watch: Mapped[bool] = mapped_column(default=False, server_default=false())
    watch_error: Mapped[str | None] = mapped_column(Text)
    paused: Mapped[bool] = mapped_column(default=False, server_default=false())
    next_at: Mapped[datetime | None]
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[datetime | None]
    syncs: Mapped[int] = mapped_column(default=0)
    listed: Mapped[int] = mapped_column(default=0)
    skipped: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None] = mapped_column(Text)
    held_deletions: Mapped[int] = mapped_column(default=0)
    confirmed_deletions: Mapped[int] = mapped_column(default=0)
    synced_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class DataSourceFileRow(Base):
    """A file of a data source as it was last read: `version` from the listing, and the document made from it.

    seen_in: the last of the source's `syncs` that listed it.
    error: why no document could be made from this version.
    """

    __tablename__ = "data_source_files"

    data_source_id: Mapped[str] = mapped_column(ForeignKey("data_sources.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(1024), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), index=True)
    version: Mapped[str] = mapped_column(String(200))
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    document_id: Mapped[str | None] = mapped_column(ForeignKey("documents.id", ondelete="SET NULL"), index=True)
    error: Mapped[str | None] = mapped_column(Text)
    seen_in: Mapped[int]
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)


class FileRow(Base):
    """A file that was uploaded without a collection: bytes of a tenant with a name. They lie in the same store as those
    of documents: equal bytes are there once."""

    __tablename__ = "files"
    __table_args__ = (Index(None, "tenant_id", "created_at"), Index(None, "tenant_id", "sha256"))

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    sha256: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(Text)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    purpose: Mapped[str] = mapped_column(String(20))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class AttachmentRow(Base):
    """A file is in a collection, as this document. Files with equal bytes are the same document there."""

    __tablename__ = "attachments"

    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True)
    file_id: Mapped[str] = mapped_column(ForeignKey("files.id", ondelete="CASCADE"), primary_key=True, index=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class IngestedPathRow(Base):
    """A document was made of the file at a path, on the command line. path_sha256: of the absolute path."""

    __tablename__ = "ingested_paths"

    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True)
    path_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), index=True)


class FileBatchRow(Base):
    """Files that were attached to a collection together."""

    __tablename__ = "file_batches"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    cancelled: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class FileBatchMemberRow(Base):
    """A file of a batch, also after it left the collection."""

    __tablename__ = "file_batch_members"

    batch_id: Mapped[str] = mapped_column(ForeignKey("file_batches.id", ondelete="CASCADE"), primary_key=True)
    file_id: Mapped[str] = mapped_column(ForeignKey("files.id", ondelete="CASCADE"), primary_key=True, index=True)
