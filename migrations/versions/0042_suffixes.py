"""A document that is renamed is read as what its file was called."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0042"
down_revision: str | None = "0041"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("documents", sa.Column("suffix", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("documents", "suffix")
