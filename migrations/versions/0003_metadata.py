"""Metadata of documents."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("documents", sa.Column("metadata", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    op.create_index(
        op.f("ix_documents_collection_id_created_at"), "documents", ["collection_id", "created_at"], unique=False
    )
    op.create_table(
        "document_labels",
        sa.Column("document_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=100), nullable=False),
        sa.Column("value", sa.String(length=250), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_document_labels_document_id_documents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("document_id", "key", "value", name=op.f("pk_document_labels")),
    )
    op.create_index(op.f("ix_document_labels_key_value"), "document_labels", ["key", "value"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_document_labels_key_value"), table_name="document_labels")
    op.drop_table("document_labels")
    op.drop_index(op.f("ix_documents_collection_id_created_at"), table_name="documents")
    op.drop_column("documents", "metadata")
