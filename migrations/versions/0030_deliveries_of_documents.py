"""Deliveries of webhooks are found by their document, with which they are deleted. Those whose document is gone go
now."""

from collections.abc import Sequence

from alembic import op

revision: str = "0030"
down_revision: str | None = "0029"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_index(op.f("ix_webhook_deliveries_document_id"), "webhook_deliveries", ["document_id"], unique=False)
    op.execute("DELETE FROM webhook_deliveries WHERE document_id NOT IN (SELECT id FROM documents)")


def downgrade() -> None:
    op.drop_index(op.f("ix_webhook_deliveries_document_id"), table_name="webhook_deliveries")
