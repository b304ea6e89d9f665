"""No collection keeps KV of random tokens: those that did keep all of them."""

from collections.abc import Sequence

from alembic import op

revision: str = "0039"
down_revision: str | None = "0038"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.execute("UPDATE collections SET kv_compress = 'none' WHERE kv_compress = 'random'")


def downgrade() -> None:
    """The rule stays: which collections had the other one is not recorded."""
