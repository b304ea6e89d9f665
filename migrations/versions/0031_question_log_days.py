"""Tenants may keep the texts of their questions for fewer days than the service, or none."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | None = "0030"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("question_log_days", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("tenants", "question_log_days")
