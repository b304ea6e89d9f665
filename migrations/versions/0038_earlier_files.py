"""Documents name the file that their text is of while another has replaced it and is not read. Paths that were ingested
on the command line name their documents."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0038"
down_revision: str | None = "0037"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

INDEX = "ix_documents_earlier_sha256"
KEPT = sa.text("earlier_sha256 IS NOT NULL")


def upgrade() -> None:
    op.add_column("documents", sa.Column("earlier_sha256", sa.String(64), nullable=True))
    op.add_column("documents", sa.Column("earlier_num_bytes", sa.BigInteger(), nullable=True))
    op.add_column("documents", sa.Column("earlier_name", sa.Text(), nullable=True))
    op.create_index(INDEX, "documents", ["earlier_sha256"], postgresql_where=KEPT, sqlite_where=KEPT)
    op.create_table(
        "ingested_paths",
        sa.Column("collection_id", sa.String(64), nullable=False),
        sa.Column("path_sha256", sa.String(64), nullable=False),
        sa.Column("document_id", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_ingested_paths_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_ingested_paths_document_id_documents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("collection_id", "path_sha256", name=op.f("pk_ingested_paths")),
    )
    op.create_index(op.f("ix_ingested_paths_document_id"), "ingested_paths", ["document_id"], unique=False)


def downgrade() -> None:
    """The earlier files stay until a sweep removes them."""
    op.drop_table("ingested_paths")
    op.drop_index(INDEX, "documents")
    for name in ("earlier_sha256", "earlier_num_bytes", "earlier_name"):
        op.drop_column("documents", name)
