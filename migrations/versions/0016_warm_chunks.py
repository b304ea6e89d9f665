"""Chunks remember how often their KV was used when it is evicted."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("chunks", sa.Column("kv_warm_until", sa.Double(), server_default=sa.text("0"), nullable=False))


def downgrade() -> None:
    op.drop_column("chunks", "kv_warm_until")
