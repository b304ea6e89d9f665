"""A list of what was deleted, which outlives a restore of an earlier backup."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0037"
down_revision: str | None = "0036"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "deletions",
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name=op.f("pk_deletions")),
    )
    op.create_index(op.f("ix_deletions_at"), "deletions", ["at"], unique=False)


def downgrade() -> None:
    op.drop_table("deletions")
