"""`ragkv keys`: create, list and revoke API keys."""

from datetime import datetime

import click
from rich.console import Console
from rich.table import Table

from ragkv.cli.opened import note_change, opened_parts
from ragkv.service.base.caller import KEY_SCOPES, KeyScope
from ragkv.service.base.tenants import DEFAULT_TENANT, ensure_collection
from ragkv.service.keys.keys import issue_key, list_all_keys, revoke_key
from ragkv.service.parts import Parts
from ragkv.text import clean_name


@click.group()
def keys() -> None:
    """Create, list and revoke API keys.

    As soon as a key exists, every request needs one.
    """


@keys.command()
@click.option("--name", required=True, help="Name of the key, shown in lists.")
@click.option("--tenant", default=DEFAULT_TENANT, help="Tenant of the key, created if it does not exist.")
@click.option(
    "--scope", "scopes", type=click.Choice(KEY_SCOPES), multiple=True, default=("read",),
    help="Scope of the key. Each scope includes those before it.",
)  # fmt: skip
@click.option("--days", type=int, help="Lifetime in days.  [default: no expiry]")
def create(name: str, tenant: str, scopes: tuple[KeyScope, ...], days: int | None) -> None:
    """Create an API key and print it, only this once."""
    with opened_parts(Parts.prepare_database) as parts:
        tenant_id = ensure_collection(parts.database, clean_name(tenant)).tenant_id
        issued = issue_key(tenant_id, name, scopes, parts.database, days)
        note_change(tenant_id, "Create an API key", "keys create", [issued.view.id], parts.database)
    click.echo(issued.key)
    click.echo("This is the only time the key is shown: keep it somewhere safe.", err=True)


@keys.command(name="list")
def show() -> None:
    """List all API keys. Their secrets are not stored."""
    table = Table("id", "tenant", "name", "scopes", "created", "last used", "state", box=None)
    table.columns[0].no_wrap = True  # a part of an id revokes nothing
    with opened_parts(Parts.prepare_database) as parts:
        for tenant, view in list_all_keys(parts.database):
            scopes = " ".join(view.scopes)
            state = f"until {_day(view.expires_at)}" if view.expires_at else "for ever"
            if view.revoked_at is not None:
                state = f"revoked {_day(view.revoked_at)}"
            table.add_row(view.id, tenant, view.name, scopes, _day(view.created_at), _day(view.last_used_at), state)
    Console(soft_wrap=True).print(table, highlight=False, markup=False)


@keys.command()
@click.argument("key_id")
def revoke(key_id: str) -> None:
    """Revoke an API key with immediate effect. KEY_ID is the part between the underscores."""
    with opened_parts(Parts.prepare_database) as parts:
        tenant_id = revoke_key(key_id, parts.database)
        note_change(tenant_id, "Revoke an API key", "keys revoke", [key_id], parts.database)
    click.echo(f"{key_id} is revoked")


def _day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d}" if moment else "never"
