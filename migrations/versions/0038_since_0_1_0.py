"""All changes of the schema between versions 0.1.0 and 0.2.0. Versions in between had revisions 0008 to 0037."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

revision: str = "0038"
down_revision: str | None = "0007"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

ID, TIME = sa.String(64), sa.DateTime(timezone=True)
ZERO, FALSE = sa.text("0"), sa.false()


def column(name: str, kind: sa.types.TypeEngine[Any], default: Any = None, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=null, server_default=default)


def optional(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return column(name, kind, null=True)


def added_columns() -> dict[str, list[sa.Column[Any]]]:
    return {
        "tenants": [optional("served_at", TIME), optional("question_log_days", sa.Integer())],
        "api_keys": [
            optional("created_by", ID),
            optional("revoked_by", ID),
            optional("created_by_person", sa.String(200)),
            optional("revoked_by_person", sa.String(200)),
        ],
        "collections": [
            column("marked_changes", sa.BigInteger(), ZERO),
            optional("kv_format", sa.String(10)),
            optional("kv_when", sa.String(10)),
            optional("kv_uses", sa.Integer()),
            optional("kv_write", sa.String(10)),
            optional("kv_compress", sa.String(10)),
            optional("kv_keep", sa.Double()),
        ],
        "documents": [
            column("outages", sa.Integer(), "0"),
            optional("retry_at", TIME),
            column("changed_in", sa.BigInteger(), ZERO),
            optional("data_source_id", ID),
            optional("origin", sa.Text()),
            column("is_attachment", sa.Boolean(), FALSE),
            column("encoder_fingerprint", ID, sa.text("''")),
            column("was_uploaded", sa.Boolean(), FALSE),
            column("is_replaced", sa.Boolean(), FALSE),
            optional("earlier_sha256", ID),
            optional("earlier_num_bytes", sa.BigInteger()),
            optional("earlier_name", sa.Text()),
        ],
        "chunks": [
            column("kv_uses", sa.Integer(), ZERO),
            column("kv_warm_until", sa.Double(), ZERO),
            optional("page_breaks", sa.LargeBinary()),
        ],
        "kv_entries": [column("warm_until", sa.Double(), ZERO)],
        "questions": [column("remote_tokens", sa.Integer(), "0")],
        "jobs": [optional("cause", sa.JSON())],
    }


def new_tables() -> dict[str, list[sa.Column[Any]]]:
    return {
        "webhooks": [
            column("id", ID),
            column("tenant_id", ID),
            optional("collection_id", ID),
            column("url", sa.Text()),
            column("secret", sa.String(100)),
            column("created_at", TIME),
        ],
        "webhook_deliveries": [
            column("id", ID),
            column("tenant_id", ID),
            column("webhook_id", ID),
            column("document_id", ID),
            column("event", sa.String(40)),
            column("body", sa.Text()),
            column("status", sa.String(20)),
            column("attempts", sa.Integer()),
            optional("code", sa.Integer()),
            optional("error", sa.Text()),
            column("created_at", TIME),
            optional("attempted_at", TIME),
            column("next_at", TIME),
        ],
        "audit_events": [
            column("id", ID),
            column("tenant_id", ID),
            column("at", TIME),
            optional("key_id", ID),
            column("action", sa.String(100)),
            column("route", sa.String(200)),
            optional("thing", sa.String(200)),
            optional("within", sa.String(200)),
            column("client", sa.String(200)),
            optional("request_id", sa.String(100)),
            optional("person", sa.String(200)),
        ],
        "feedback": [
            column("answer_id", ID),
            column("tenant_id", ID),
            column("collection_id", ID),
            column("question", sa.Text()),
            column("answer", sa.Text()),
            column("num_passages", sa.Integer()),
            column("rating", sa.String(10)),
            optional("correction", sa.Text()),
            optional("comment", sa.Text()),
            column("asked_at", TIME),
            column("updated_at", TIME),
        ],
        "feedback_passages": [
            column("answer_id", ID),
            column("ordinal", sa.Integer()),
            column("document_id", ID),
            column("title", sa.Text()),
            column("text", sa.Text()),
        ],
        "evaluations": [
            column("id", ID),
            column("tenant_id", ID),
            column("collection_id", ID),
            column("kind", sa.String(20)),
            column("source", sa.String(20)),
            column("state", sa.String(20)),
            column("total", sa.Integer()),
            column("done", sa.Integer()),
            column("attempts", sa.Integer()),
            optional("holder", ID),
            optional("leased_until", TIME),
            column("stepped_at", TIME),
            optional("settings", sa.JSON()),
            optional("figures", sa.JSON()),
            optional("error", sa.Text()),
            column("created_at", TIME),
            optional("ended_at", TIME),
        ],
        "evaluation_questions": [
            column("evaluation_id", ID),
            column("ordinal", sa.Integer()),
            optional("question_id", ID),
            optional("given", sa.JSON()),
            optional("outcome", sa.JSON()),
            optional("answers", sa.JSON()),
            optional("error", sa.Text()),
        ],
        "data_sources": [
            column("id", ID),
            column("tenant_id", ID),
            column("collection_id", ID),
            column("location", sa.String(1000)),
            column("interval_minutes", sa.Integer()),
            column("paused", sa.Boolean(), FALSE),
            optional("next_at", TIME),
            optional("lease_owner", sa.String(200)),
            optional("lease_until", TIME),
            column("syncs", sa.Integer()),
            column("listed", sa.Integer()),
            column("skipped", sa.Integer()),
            optional("error", sa.Text()),
            column("held_deletions", sa.Integer()),
            column("confirmed_deletions", sa.Integer()),
            optional("synced_at", TIME),
            column("created_at", TIME),
            column("watch", sa.Boolean(), FALSE),
            optional("watch_error", sa.Text()),
        ],
        "data_source_files": [
            column("data_source_id", ID),
            column("key", sa.String(1024)),
            column("tenant_id", ID),
            column("version", sa.String(200)),
            column("num_bytes", sa.BigInteger()),
            optional("document_id", ID),
            optional("error", sa.Text()),
            column("seen_in", sa.Integer()),
            column("updated_at", TIME),
        ],
        "mail_attachments": [
            column("mail_id", ID),
            column("sha256", ID),
            column("tenant_id", ID),
            column("ordinal", sa.Integer()),
            column("name", sa.Text()),
            column("num_bytes", sa.BigInteger()),
            optional("document_id", ID),
            optional("error", sa.Text()),
        ],
        "deletions": [column("kind", sa.String(40)), column("id", ID), column("at", TIME)],
        "ingested_paths": [column("collection_id", ID), column("path_sha256", ID), column("document_id", ID)],
    }


PRIMARY_KEYS = {
    "feedback": ["answer_id"],
    "feedback_passages": ["answer_id", "ordinal"],
    "evaluation_questions": ["evaluation_id", "ordinal"],
    "data_source_files": ["data_source_id", "key"],
    "mail_attachments": ["mail_id", "sha256"],
    "deletions": ["kind", "id"],
    "ingested_paths": ["collection_id", "path_sha256"],
}
"""Of the new tables whose key is not `id`."""

REFERENCES = {
    "tenant_id": "tenants.id",
    "collection_id": "collections.id",
    "document_id": "documents.id",
    "webhook_id": "webhooks.id",
    "answer_id": "feedback.answer_id",
    "evaluation_id": "evaluations.id",
    "data_source_id": "data_sources.id",
    "mail_id": "documents.id",
}
NO_REFERENCES = {("webhook_deliveries", "document_id"), ("feedback", "answer_id")}
SET_NULL = {("data_source_files", "document_id"), ("mail_attachments", "document_id")}

INDEXES = (
    ("documents", ("tenant_id", "status", "kv_evicted", "created_at")),
    ("documents", ("collection_id", "updated_at")),
    ("documents", ("tenant_id", "created_at")),
    ("documents", ("tenant_id", "sha256", "num_bytes")),
    ("documents", ("collection_id", "changed_in")),
    ("chunks", ("tenant_id",)),
    ("questions", ("tenant_id", "created_at")),
    ("questions", ("collection_id",)),
    ("jobs", ("updated_at",)),
    ("kv_entries", ("tier", "key")),
    ("webhooks", ("tenant_id",)),
    ("webhooks", ("collection_id",)),
    ("webhook_deliveries", ("tenant_id",)),
    ("webhook_deliveries", ("webhook_id", "created_at")),
    ("webhook_deliveries", ("status", "next_at")),
    ("webhook_deliveries", ("document_id",)),
    ("audit_events", ("at",)),
    ("audit_events", ("tenant_id", "at")),
    ("audit_events", ("tenant_id", "thing")),
    ("audit_events", ("tenant_id", "within")),
    ("feedback", ("tenant_id", "asked_at")),
    ("feedback", ("collection_id",)),
    ("feedback_passages", ("document_id",)),
    ("evaluations", ("collection_id",)),
    ("evaluations", ("state",)),
    ("evaluations", ("tenant_id", "created_at")),
    ("data_sources", ("tenant_id",)),
    ("data_sources", ("next_at",)),
    ("data_source_files", ("tenant_id",)),
    ("data_source_files", ("document_id",)),
    ("mail_attachments", ("tenant_id",)),
    ("mail_attachments", ("document_id",)),
    ("deletions", ("at",)),
    ("ingested_paths", ("document_id",)),
)
PARTIAL_INDEXES = (
    ("ix_chunks_kv_uses", "chunks", "kv_uses", "kv_uses > 0"),
    ("ix_documents_attachments", "documents", "collection_id", "is_attachment"),
    ("ix_documents_earlier_sha256", "documents", "earlier_sha256", "earlier_sha256 IS NOT NULL"),
)

APPEND_ONLY = {
    "postgresql": (
        (
            "CREATE FUNCTION audit_events_fixed() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
        ),
        (
            "CREATE TRIGGER audit_events_fixed BEFORE UPDATE ON audit_events "
            "FOR EACH ROW EXECUTE FUNCTION audit_events_fixed()"
        ),
    ),
    "sqlite": (
        (
            "CREATE TRIGGER audit_events_fixed BEFORE UPDATE ON audit_events "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        ),
    ),
}
USED_ONCE = {
    "postgresql": "UPDATE kv_entries SET warm_until = extract(epoch FROM last_used_at)",
    "sqlite": "UPDATE kv_entries SET warm_until = (julianday(last_used_at) - julianday('1970-01-01')) * 86400",
}
# Whether an attached file's document was uploaded as well is not recorded: it goes with the file, as before.
UPLOADED = (
    "UPDATE documents SET was_uploaded = TRUE "
    "WHERE NOT EXISTS (SELECT 1 FROM attachments WHERE attachments.document_id = documents.id)"
)

MAX_LABEL_CHARS = 200
DOCUMENTS = sa.table("documents", sa.column("id", sa.String()), sa.column("metadata", sa.JSON()))
LABELS = sa.table("document_labels", *(sa.column(name, sa.String()) for name in ("document_id", "key", "value")))


def upgrade() -> None:
    for table, columns in added_columns().items():
        for added in columns:
            op.add_column(table, added)
    for table, columns in new_tables().items():
        op.create_table(table, *columns, *constraints(table, columns))
    for table, names in INDEXES:
        op.create_index(op.f(index_name(table, names)), table, list(names))
    for name, table, indexed, condition in PARTIAL_INDEXES:
        where = sa.text(condition)
        op.create_index(name, table, [indexed], postgresql_where=where, sqlite_where=where)
    dialect = op.get_bind().dialect.name
    for statement in (*APPEND_ONLY[dialect], USED_ONCE[dialect], UPLOADED):
        op.execute(statement)
    label_long_values()


def downgrade() -> None:
    """Files of earlier contents stay until a sweep removes them."""
    op.execute("DELETE FROM document_labels WHERE value LIKE '#%'")
    for table in reversed(new_tables()):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_events_fixed()")
    for table, names in INDEXES:
        if table in added_columns():
            op.drop_index(op.f(index_name(table, names)), table)
    for name, table, _, _ in PARTIAL_INDEXES:
        op.drop_index(name, table)
    for table, columns in added_columns().items():
        for added in reversed(columns):
            op.drop_column(table, added.name)


def index_name(table: str, names: Sequence[str]) -> str:
    return f"ix_{table}_{'_'.join(names)}"


def constraints(table: str, columns: Sequence[sa.Column[Any]]) -> Iterator[sa.Constraint]:
    yield sa.PrimaryKeyConstraint(*PRIMARY_KEYS.get(table, ["id"]), name=op.f(f"pk_{table}"))
    for name in (column.name for column in columns if column.name in REFERENCES):
        if (table, name) not in NO_REFERENCES:
            target = REFERENCES[name]
            yield sa.ForeignKeyConstraint(
                [name],
                [target],
                name=op.f(f"fk_{table}_{name}_{target.partition('.')[0]}"),
                ondelete="SET NULL" if (table, name) in SET_NULL else "CASCADE",
            )
    if table == "data_sources":
        unique = ("collection_id", "location")
        yield sa.UniqueConstraint(*unique, name=op.f(f"uq_data_sources_{'_'.join(unique)}"))


def label_long_values() -> None:
    """Give values of metadata that are too long for a label one with their digest, by which filters find them."""
    connection = op.get_bind()
    unchanging = sa.select(DOCUMENTS).with_for_update(read=True)  # until the labels are there
    documents = connection.execute(unchanging, execution_options={"yield_per": 500})
    for partition in documents.partitions():
        labels = {(document_id, *label) for document_id, metadata in partition for label in long_labels(metadata)}
        if labels:
            rows = [dict(zip(LABELS.columns.keys(), label, strict=True)) for label in labels]
            connection.execute(sa.insert(LABELS), rows)


def long_labels(metadata: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in metadata.items():
        for member in value if isinstance(value, list) else [value]:
            if isinstance(member, str | int | float):
                is_whole = isinstance(member, float) and member.is_integer()
                encoded = msgspec.json.encode(int(member) if is_whole else member)
                if len(encoded.decode()) > MAX_LABEL_CHARS:
                    yield key, f"#{hashlib.sha256(encoded).hexdigest()}"
