"""Files attached to mails, which are documents of their own; chunks know where pages begin in them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("chunks", sa.Column("page_breaks", sa.LargeBinary(), nullable=True))
    op.add_column("documents", sa.Column("is_attachment", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index(
        "ix_documents_attachments",
        "documents",
        ["collection_id"],
        unique=False,
        postgresql_where=sa.text("is_attachment"),
        sqlite_where=sa.text("is_attachment"),
    )
    op.create_table(
        "mail_attachments",
        sa.Column("mail_id", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("document_id", sa.String(length=64), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_mail_attachments_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["mail_id"], ["documents.id"], name=op.f("fk_mail_attachments_mail_id_documents"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["documents.id"],
            name=op.f("fk_mail_attachments_document_id_documents"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("mail_id", "sha256", name=op.f("pk_mail_attachments")),
    )
    for column in ("tenant_id", "document_id"):
        op.create_index(op.f(f"ix_mail_attachments_{column}"), "mail_attachments", [column], unique=False)


def downgrade() -> None:
    op.drop_table("mail_attachments")
    op.drop_index("ix_documents_attachments", "documents")
    op.drop_column("documents", "is_attachment")
    op.drop_column("chunks", "page_breaks")
