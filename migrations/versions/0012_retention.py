"""An index by which old jobs are found."""

from collections.abc import Sequence

from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_index(op.f("ix_jobs_updated_at"), "jobs", ["updated_at"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_jobs_updated_at"), table_name="jobs")
