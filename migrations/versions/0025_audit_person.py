"""The people of the audit log's changes, beside the API keys."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("audit_events", sa.Column("person", sa.String(length=200), nullable=True))


def downgrade() -> None:
    op.drop_column("audit_events", "person")
