"""Questions say which model answered them, and how much of what was stitched had to be read from the disk."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("questions", sa.Column("disk_tokens", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("questions", sa.Column("model", sa.String(length=200), nullable=True))


def downgrade() -> None:
    op.drop_column("questions", "model")
    op.drop_column("questions", "disk_tokens")
