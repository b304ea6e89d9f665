"""API keys say which key made them, and which revoked them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("created_by", sa.String(length=64), nullable=True))
    op.add_column("api_keys", sa.Column("revoked_by", sa.String(length=64), nullable=True))


def downgrade() -> None:
    op.drop_column("api_keys", "revoked_by")
    op.drop_column("api_keys", "created_by")
