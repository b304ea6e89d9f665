"""Generations of collections, their answer cache, and which KV stays."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    with op.batch_alter_table("collections") as batch:
        batch.add_column(sa.Column("generation", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
        batch.add_column(sa.Column("cache_answers", sa.Boolean(), server_default=sa.false(), nullable=False))
        batch.add_column(sa.Column("cache_threshold", sa.Double(), server_default=sa.text("0.95"), nullable=False))
        batch.add_column(sa.Column("cache_ttl_s", sa.Integer(), server_default=sa.text("86400"), nullable=False))
        batch.add_column(sa.Column("kv_pinned", sa.Boolean(), server_default=sa.false(), nullable=False))
    with op.batch_alter_table("documents") as batch:
        batch.add_column(sa.Column("kv_pinned", sa.Boolean(), server_default=sa.false(), nullable=False))
        batch.add_column(sa.Column("kv_evicted", sa.Boolean(), server_default=sa.false(), nullable=False))
    with op.batch_alter_table("kv_entries") as batch:
        batch.create_index(op.f("ix_kv_entries_last_used_at"), ["last_used_at"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("kv_entries") as batch:
        batch.drop_index(op.f("ix_kv_entries_last_used_at"))
    with op.batch_alter_table("documents") as batch:
        for name in ("kv_evicted", "kv_pinned"):
            batch.drop_column(name)
    with op.batch_alter_table("collections") as batch:
        for name in ("kv_pinned", "cache_ttl_s", "cache_threshold", "cache_answers", "generation"):
            batch.drop_column(name)
