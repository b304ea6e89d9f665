"""Generations of collections, their answer cache, and which KV stays."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("collections", sa.Column("generation", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("collections", sa.Column("cache_answers", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column(
        "collections", sa.Column("cache_threshold", sa.Double(), nullable=False, server_default=sa.text("0.95"))
    )
    op.add_column(
        "collections", sa.Column("cache_ttl_s", sa.Integer(), nullable=False, server_default=sa.text("86400"))
    )
    op.add_column("collections", sa.Column("kv_pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("documents", sa.Column("kv_pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("documents", sa.Column("kv_evicted", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index(op.f("ix_kv_entries_last_used_at"), "kv_entries", ["last_used_at"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_kv_entries_last_used_at"), table_name="kv_entries")
    for name in ("kv_evicted", "kv_pinned"):
        op.drop_column("documents", name)
    for name in ("kv_pinned", "cache_ttl_s", "cache_threshold", "cache_answers", "generation"):
        op.drop_column("collections", name)
