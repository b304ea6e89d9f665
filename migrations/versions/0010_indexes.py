"""Indexes for lists, quotas and deletions of one tenant or collection among many."""

from collections.abc import Sequence

from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

INDEXES = (
    ("documents", ("collection_id", "updated_at")),
    ("documents", ("tenant_id", "created_at")),
    ("documents", ("tenant_id", "sha256", "num_bytes")),
    ("chunks", ("tenant_id",)),
    ("questions", ("tenant_id", "created_at")),
    ("questions", ("collection_id",)),
)


def upgrade() -> None:
    for table, columns in INDEXES:
        op.create_index(op.f(_name(table, columns)), table, list(columns), unique=False)


def downgrade() -> None:
    for table, columns in reversed(INDEXES):
        op.drop_index(op.f(_name(table, columns)), table_name=table)


def _name(table: str, columns: Sequence[str]) -> str:
    return f"ix_{table}_{'_'.join(columns)}"
