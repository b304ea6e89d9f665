"""Jobs are listed by tenant, newest first, also those of one status."""

from collections.abc import Sequence

from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_index(op.f("ix_jobs_tenant_id_created_at"), "jobs", ["tenant_id", "created_at"], unique=False)
    op.create_index(
        op.f("ix_jobs_tenant_id_status_created_at"), "jobs", ["tenant_id", "status", "created_at"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_jobs_tenant_id_status_created_at"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_tenant_id_created_at"), table_name="jobs")
