"""Uploaded files, where they are attached, and batches of them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("purpose", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_files_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index(op.f("ix_files_tenant_id_created_at"), "files", ["tenant_id", "created_at"], unique=False)
    op.create_index(op.f("ix_files_tenant_id_sha256"), "files", ["tenant_id", "sha256"], unique=False)
    op.create_table(
        "attachments",
        sa.Column("document_id", sa.String(length=64), nullable=False),
        sa.Column("file_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_attachments_document_id_documents"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["file_id"], ["files.id"], name=op.f("fk_attachments_file_id_files"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("document_id", "file_id", name=op.f("pk_attachments")),
    )
    op.create_index(op.f("ix_attachments_file_id"), "attachments", ["file_id"], unique=False)
    op.create_table(
        "file_batches",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("collection_id", sa.String(length=64), nullable=False),
        sa.Column("cancelled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_file_batches_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_file_batches")),
    )
    op.create_index(op.f("ix_file_batches_collection_id"), "file_batches", ["collection_id"], unique=False)
    op.create_table(
        "file_batch_members",
        sa.Column("batch_id", sa.String(length=64), nullable=False),
        sa.Column("file_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["file_batches.id"],
            name=op.f("fk_file_batch_members_batch_id_file_batches"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["file_id"], ["files.id"], name=op.f("fk_file_batch_members_file_id_files"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("batch_id", "file_id", name=op.f("pk_file_batch_members")),
    )
    op.create_index(op.f("ix_file_batch_members_file_id"), "file_batch_members", ["file_id"], unique=False)


def downgrade() -> None:
    op.drop_table("file_batch_members")
    op.drop_table("file_batches")
    op.drop_table("attachments")
    op.drop_table("files")
