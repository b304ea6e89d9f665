"""Documents say in which generation of their collection their chunks were written."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

COLUMNS = (("collections", "marked_changes"), ("documents", "changed_in"))


def upgrade() -> None:
    for table, name in COLUMNS:
        op.add_column(table, sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.create_index(
        op.f("ix_documents_collection_id_changed_in"), "documents", ["collection_id", "changed_in"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_documents_collection_id_changed_in"), table_name="documents")
    for table, name in reversed(COLUMNS):
        op.drop_column(table, name)
