"""Collections say when their KV is uploaded to the object store."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0026"
down_revision: str | None = "0025"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("collections", sa.Column("kv_write", sa.String(length=10), nullable=True))


def downgrade() -> None:
    op.drop_column("collections", "kv_write")
