"""Alembic's entry point. The service passes a connection; a developer passes `-x url=...` on alembic's command line."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection

from ragkv.service.base.database import open_engine
from ragkv.service.base.tables import Base, UtcDateTime


def render_item(kind: str, item: Any, autogen_context: AutogenContext) -> str | Literal[False]:
    """Migrations stand alone: they name the database's types, not ours."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcDateTime) else False


def run_migrations(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_item=render_item,
    )
    with context.begin_transaction():
        context.run_migrations()


service_connection: Connection | None = context.config.attributes.get("connection")
if service_connection is not None:
    run_migrations(service_connection)
else:
    with open_engine(context.get_x_argument(as_dictionary=True)["url"]).begin() as connection:
        run_migrations(connection)
