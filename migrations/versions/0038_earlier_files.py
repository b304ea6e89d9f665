"""Documents name the file that their text is of while another has replaced it and is not read."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0038"
down_revision: str | None = "0036"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

INDEX = "ix_documents_earlier_sha256"
KEPT = sa.text("earlier_sha256 IS NOT NULL")


def upgrade() -> None:
    op.add_column("documents", sa.Column("earlier_sha256", sa.String(64), nullable=True))
    op.add_column("documents", sa.Column("earlier_num_bytes", sa.BigInteger(), nullable=True))
    op.add_column("documents", sa.Column("earlier_name", sa.Text(), nullable=True))
    op.create_index(INDEX, "documents", ["earlier_sha256"], postgresql_where=KEPT, sqlite_where=KEPT)


def downgrade() -> None:
    """The earlier files stay until a sweep removes them."""
    op.drop_index(INDEX, "documents")
    for name in ("earlier_sha256", "earlier_num_bytes", "earlier_name"):
        op.drop_column("documents", name)
