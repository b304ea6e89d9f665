"""Collections say which share of each chunk's tokens has KV, and by which method they are chosen."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0032"
down_revision: str | None = "0031"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("collections", sa.Column("kv_compress", sa.String(length=10), nullable=True))
    op.add_column("collections", sa.Column("kv_keep", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("collections", "kv_keep")
    op.drop_column("collections", "kv_compress")
