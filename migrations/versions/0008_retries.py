"""A document that failed is tried again no sooner than a moment of its own, and outages are not its failures."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("documents", sa.Column("outages", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("documents", sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("documents", "retry_at")
    op.drop_column("documents", "outages")
