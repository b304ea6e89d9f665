"""KV entries say how often they were used of late."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

USED_ONCE = {
    "postgresql": "UPDATE kv_entries SET warm_until = extract(epoch FROM last_used_at)",
    "sqlite": "UPDATE kv_entries SET warm_until = (julianday(last_used_at) - julianday('1970-01-01')) * 86400",
}


def upgrade() -> None:
    op.add_column("kv_entries", sa.Column("warm_until", sa.Double(), server_default=sa.text("0"), nullable=False))
    op.execute(USED_ONCE[op.get_bind().dialect.name])


def downgrade() -> None:
    op.drop_column("kv_entries", "warm_until")
