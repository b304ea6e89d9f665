"""Documents say whether they were uploaded: these stay when files of the same bytes are detached."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0033"
down_revision: str | None = "0032"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

# It is not known of an attached file's document whether it was uploaded as well: it goes with the file, as before.
UPLOADED = (
    "UPDATE documents SET was_uploaded = TRUE WHERE data_source_id IS NULL AND NOT is_attachment "
    "AND NOT EXISTS (SELECT 1 FROM attachments WHERE attachments.document_id = documents.id)"
)


def upgrade() -> None:
    op.add_column("documents", sa.Column("was_uploaded", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute(UPLOADED)


def downgrade() -> None:
    op.drop_column("documents", "was_uploaded")
