"""`ragkv data-sources`: connect folders and object stores to collections, list and sync them, pause and remove them."""

import sys

import click
from rich.console import Console
from rich.text import Text

from ragkv.cli import Group
from ragkv.cli.opened import COLLECTION, note_change, opened_tenant
from ragkv.service.base.page import MAX_PAGE, all_pages
from ragkv.service.base.tenants import DEFAULT_TENANT
from ragkv.service.data_sources.data_sources import (
    DEFAULT_INTERVAL_MINUTES,
    DataSourceView,
    add_data_source,
    change_data_source,
    data_source_view,
    list_data_sources,
    list_source_files,
    remove_data_source,
    request_sync,
)
from ragkv.service.data_sources.statements import FileStatus
from ragkv.service.data_sources.syncing import SyncTally, sync_now
from ragkv.text import escaped

TENANT = click.option("--tenant", default=DEFAULT_TENANT, help="Tenant of the data source.")
ID = click.argument("data_source_id", metavar="ID")


@click.group(name="data-sources", cls=Group)
def data_sources() -> None:
    """Keep collections in sync with folders and object stores.

    RAGKV_DATA_SOURCES_ALLOWED names the locations that may be connected.
    """


@data_sources.command()
@click.argument("location")
@TENANT
@COLLECTION
@click.option(
    "--every", "minutes", type=int, default=DEFAULT_INTERVAL_MINUTES,
    help="Minutes between syncs; 0: only on request.",
)  # fmt: skip
@click.option(
    "--watch/--no-watch", default=None, help="Also sync a folder seconds after a change.  [default: for folders]",
)  # fmt: skip
def add(location: str, tenant: str, collection: str, minutes: int, *, watch: bool | None) -> None:
    """Connect LOCATION, a folder or a URL such as s3://bucket/prefix, to a collection. A worker syncs it."""
    with opened_tenant(tenant) as (parts, tenant_id):
        source = add_data_source(tenant_id, collection, location, minutes, parts.database, parts.settings, watch)
        note_change(tenant_id, "Create a data source", "data-sources add", [source.id], parts.database)
    click.echo(source.id)


@data_sources.command("list")
@TENANT
def show_all(tenant: str) -> None:
    """List data sources with their files by status."""
    with opened_tenant(tenant) as (parts, tenant_id):
        for source in list_data_sources(tenant_id, parts.database):
            files = source.files
            last = f"{source.synced_at:%Y-%m-%d %H:%M}" if source.synced_at else "never"
            click.echo(f"{source.id}  {source.location}")
            click.echo(
                f"    {source.status}: {files.ready:,} ready, {files.searchable:,} searchable, {files.waiting:,} waiting, "
                f"{files.failed:,} failed, {files.unreadable:,} unreadable, {files.skipped:,} skipped; last sync {last}{_watched(source)}"
            )


@data_sources.command()
@ID
@TENANT
@click.option(
    "--status", type=click.Choice([status.value for status in FileStatus]), help="Only files with this status."
)
def show(data_source_id: str, tenant: str, status: str | None) -> None:
    """Show a data source and its files, each with the reason why it could not be read."""
    file_status = None if status is None else FileStatus(status)
    console = Console(soft_wrap=True)
    with opened_tenant(tenant) as (parts, tenant_id):
        view = data_source_view(tenant_id, data_source_id, parts.database)
        reason = f": {view.error}" if view.error else ""
        line = f"{view.location}  {view.status}{reason}{_watched(view)}"
        console.print(escaped(line), highlight=False, markup=False)
        for file in all_pages(
            lambda cursor: list_source_files(tenant_id, data_source_id, file_status, MAX_PAGE, cursor, parts.database)
        ):
            reason = f": {file.error}" if file.error else ""
            console.print(escaped(f"  {file.status:10}  {file.key}{reason}"), highlight=False, markup=False)


@data_sources.command()
@ID
@TENANT
@click.option("--confirm", is_flag=True, help="Make the deletions that the last sync held back.")
def sync(data_source_id: str, tenant: str, *, confirm: bool) -> None:
    """Sync a data source in this process. Its documents are read by the workers.

    The exit code is 1 if the sync stopped or held deletions back.
    """
    console = Console(stderr=True, soft_wrap=True)
    with opened_tenant(tenant) as (parts, tenant_id):
        source = data_source_view(tenant_id, data_source_id, parts.database)
        if confirm:
            request_sync(tenant_id, source.id, confirm=True, database=parts.database)
            note_change(tenant_id, "Sync a data source", "data-sources sync --confirm", [source.id], parts.database)
        with console.status(Text(source.location)) as status:

            def show(tally: SyncTally) -> bool:
                read = tally.added + tally.changed
                status.update(Text(f"{source.location}: {tally.listed:,} files listed, {read:,} read"))
                return True

            tally = sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, show)
    click.echo(
        f"{tally.added:,} new, {tally.changed:,} changed, {tally.deleted:,} deleted, {tally.unchanged:,} unchanged, "
        f"{tally.unreadable:,} unreadable, {tally.skipped:,} skipped"
    )
    if tally.error is not None:
        hint = " (--confirm)" if tally.outcome == "held" else ""
        click.echo(f"ragkv: {escaped(tally.error)}{hint}", err=True)
        sys.exit(1)


def _add_command(name: str, text: str, outcome: str, **change: bool) -> None:
    """Add a command that makes this change to a data source, and notes it in the audit log."""

    @data_sources.command(name, help=text)
    @ID
    @TENANT
    def command(data_source_id: str, tenant: str) -> None:
        with opened_tenant(tenant) as (parts, tenant_id):
            changed = change_data_source(tenant_id, data_source_id, parts.database, **change)
            note_change(tenant_id, "Update a data source", f"data-sources {name}", [changed.id], parts.database)
        click.echo(f"{changed.location} is {outcome}")


_add_command("pause", "Stop syncing a data source until it is resumed. A sync in progress ends.", "paused", paused=True)
_add_command("resume", "Sync a paused data source again.", "resumed", paused=False)
_add_command(
    "watch", "Watch a folder: sync it seconds after a change, as well as by its interval.", "watched", watch=True
)
_add_command("unwatch", "Sync a folder by its interval alone.", "not watched", watch=False)


@data_sources.command()
@ID
@TENANT
def remove(data_source_id: str, tenant: str) -> None:
    """Disconnect a data source. Its documents stay."""
    with opened_tenant(tenant) as (parts, tenant_id):
        remove_data_source(tenant_id, data_source_id, parts.database)
        note_change(tenant_id, "Delete a data source", "data-sources remove", [data_source_id], parts.database)
    click.echo(f"{data_source_id} is removed")


def _watched(view: DataSourceView) -> str:
    if not view.watch:
        return ""
    return f"; not watched: {view.watch_error}" if view.watch_error else "; watched"
