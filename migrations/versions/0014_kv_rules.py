"""Collections say in which format and from when on their KV is kept; chunks count uses without KV."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

NAMES = ("kv_format", "kv_when")


def upgrade() -> None:
    for name in NAMES:
        op.add_column("collections", sa.Column(name, sa.String(length=10), nullable=True))
    op.add_column("collections", sa.Column("kv_uses", sa.Integer(), nullable=True))
    op.add_column("chunks", sa.Column("kv_uses", sa.Integer(), server_default=sa.text("0"), nullable=False))
    used = sa.text("kv_uses > 0")
    op.create_index("ix_chunks_kv_uses", "chunks", ["kv_uses"], postgresql_where=used, sqlite_where=used)


def downgrade() -> None:
    op.drop_index("ix_chunks_kv_uses", table_name="chunks")
    op.drop_column("chunks", "kv_uses")
    for name in ("kv_uses", *reversed(NAMES)):
        op.drop_column("collections", name)
