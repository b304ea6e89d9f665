"""Values of evaluations that are not there are NULL: earlier versions restored them as JSON's null, so that questions
seemed to be measured."""

from collections.abc import Sequence

from alembic import op

revision: str = "0036"
down_revision: str | None = "0035"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

COLUMNS = {"evaluations": ("settings", "figures"), "evaluation_questions": ("given", "outcome", "answers")}


def upgrade() -> None:
    for table, names in COLUMNS.items():
        for name in names:
            op.execute(f"UPDATE {table} SET {name} = NULL WHERE CAST({name} AS TEXT) = 'null'")  # noqa: S608 - constants


def downgrade() -> None:
    """Earlier versions take both for the same, but for the questions that they left out."""
