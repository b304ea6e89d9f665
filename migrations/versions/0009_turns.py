"""Tenants take turns in the queue; jobs remember the request that caused them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_INDEX = "ix_documents_tenant_id_status_kv_evicted_created_at"


def upgrade() -> None:
    op.add_column("tenants", sa.Column("served_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("cause", sa.JSON(), nullable=True))
    op.create_index(op.f(_INDEX), "documents", ["tenant_id", "status", "kv_evicted", "created_at"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f(_INDEX), table_name="documents")
    op.drop_column("jobs", "cause")
    op.drop_column("tenants", "served_at")
