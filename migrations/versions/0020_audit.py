"""The audit log, whose rows cannot be changed."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

REFUSED = "the audit log is append-only"


def upgrade() -> None:
    op.create_table(
        "audit_events",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=True),
        sa.Column("action", sa.String(length=100), nullable=False),
        sa.Column("route", sa.String(length=200), nullable=False),
        sa.Column("thing", sa.String(length=200), nullable=True),
        sa.Column("within", sa.String(length=200), nullable=True),
        sa.Column("client", sa.String(length=200), nullable=False),
        sa.Column("request_id", sa.String(length=100), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_audit_events_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    for columns in (["at"], ["tenant_id", "at"], ["tenant_id", "thing"], ["tenant_id", "within"]):
        op.create_index(op.f(f"ix_audit_events_{'_'.join(columns)}"), "audit_events", columns, unique=False)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION audit_events_fixed() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_events_fixed BEFORE UPDATE ON audit_events "
            "FOR EACH ROW EXECUTE FUNCTION audit_events_fixed()"
        )
    else:
        op.execute(
            "CREATE TRIGGER audit_events_fixed BEFORE UPDATE ON audit_events "
            f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        )


def downgrade() -> None:
    op.drop_table("audit_events")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_events_fixed()")
