"""Documents have the counts of what was left out of their text: hidden words, and characters of encoded files."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0040"
down_revision: str | None = "0039"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

COUNTS = ("hidden_words", "encoded_chars")


def upgrade() -> None:
    for name in COUNTS:
        op.add_column("documents", sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    for name in COUNTS:
        op.drop_column("documents", name)
