"""Data sources, their files, and the documents made from these."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "data_sources",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("collection_id", sa.String(length=64), nullable=False),
        sa.Column("location", sa.String(length=1000), nullable=False),
        sa.Column("interval_minutes", sa.Integer(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("syncs", sa.Integer(), nullable=False),
        sa.Column("listed", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("held_deletions", sa.Integer(), nullable=False),
        sa.Column("confirmed_deletions", sa.Integer(), nullable=False),
        sa.Column("synced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_data_sources_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_data_sources_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_data_sources")),
        sa.UniqueConstraint("collection_id", "location", name=op.f("uq_data_sources_collection_id_location")),
    )
    op.create_index(op.f("ix_data_sources_tenant_id"), "data_sources", ["tenant_id"], unique=False)
    op.create_index(op.f("ix_data_sources_next_at"), "data_sources", ["next_at"], unique=False)
    op.create_table(
        "data_source_files",
        sa.Column("data_source_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=1024), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("document_id", sa.String(length=64), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("seen_in", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["data_source_id"],
            ["data_sources.id"],
            name=op.f("fk_data_source_files_data_source_id_data_sources"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_data_source_files_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["documents.id"],
            name=op.f("fk_data_source_files_document_id_documents"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("data_source_id", "key", name=op.f("pk_data_source_files")),
    )
    for column in ("tenant_id", "document_id"):
        op.create_index(op.f(f"ix_data_source_files_{column}"), "data_source_files", [column], unique=False)
    op.add_column("documents", sa.Column("data_source_id", sa.String(length=64), nullable=True))
    op.add_column("documents", sa.Column("origin", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("documents", "origin")
    op.drop_column("documents", "data_source_id")
    op.drop_table("data_source_files")
    op.drop_table("data_sources")
