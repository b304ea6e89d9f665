"""Documents say which encoder made their vectors."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0028"
down_revision: str | None = "0027"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(
        "documents",
        sa.Column("encoder_fingerprint", sa.String(length=64), nullable=False, server_default=sa.text("''")),
    )


def downgrade() -> None:
    op.drop_column("documents", "encoder_fingerprint")
