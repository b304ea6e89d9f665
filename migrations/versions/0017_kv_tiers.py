"""An index of KV by tier: what is still to be uploaded is found at once."""

from collections.abc import Sequence

from alembic import op

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_index(op.f("ix_kv_entries_tier_key"), "kv_entries", ["tier", "key"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_kv_entries_tier_key"), table_name="kv_entries")
