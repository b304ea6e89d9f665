"""Values of metadata that are too long for a label get one: filters find them by a digest."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

revision: str = "0035"
down_revision: str | None = "0034"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

MAX_LABEL_CHARS = 200
DOCUMENTS = sa.table("documents", sa.column("id", sa.String()), sa.column("metadata", sa.JSON()))
LABELS = sa.table("document_labels", *(sa.column(name, sa.String()) for name in ("document_id", "key", "value")))


def upgrade() -> None:
    connection = op.get_bind()
    unchanging = sa.select(DOCUMENTS).with_for_update(read=True)  # until the labels are there
    documents = connection.execute(unchanging, execution_options={"yield_per": 500})
    for some in documents.partitions():
        labels = {(document_id, *label) for document_id, metadata in some for label in labels_of_long_values(metadata)}
        if labels:
            rows = [dict(zip(LABELS.columns.keys(), label, strict=True)) for label in labels]
            connection.execute(sa.insert(LABELS), rows)


def downgrade() -> None:
    op.execute("DELETE FROM document_labels WHERE value LIKE '#%'")


def labels_of_long_values(metadata: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in metadata.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str | int | float):
                encoded = msgspec.json.encode(int(one) if isinstance(one, float) and one.is_integer() else one)
                if len(encoded.decode()) > MAX_LABEL_CHARS:
                    yield key, f"#{hashlib.sha256(encoded).hexdigest()}"
