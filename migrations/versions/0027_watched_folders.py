"""Data sources say whether their folder is watched for changes, and why it cannot be."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0027"
down_revision: str | None = "0026"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("data_sources", sa.Column("watch", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("data_sources", sa.Column("watch_error", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("data_sources", "watch_error")
    op.drop_column("data_sources", "watch")
