"""The people who created and revoked API keys, beside the keys that did."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("created_by_person", sa.String(length=200), nullable=True))
    op.add_column("api_keys", sa.Column("revoked_by_person", sa.String(length=200), nullable=True))


def downgrade() -> None:
    op.drop_column("api_keys", "revoked_by_person")
    op.drop_column("api_keys", "created_by_person")
