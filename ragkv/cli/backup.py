"""`ragkv backup` and `ragkv restore`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ragkv.cli.opened import opened_parts
from ragkv.service.backup.backup import backup as write_backup
from ragkv.service.backup.restore import Consequences
from ragkv.service.backup.restore import restore as put_back
from ragkv.text import plural

FOLDER = click.Path(file_okay=False, path_type=Path)
NEXT_STEPS = """\
Next:
  1. Restart the API and the workers: running processes hold data from before the restore.
  2. Documents can be searched at once; a worker computes their KV again (ragkv status shows the progress).
  3. Everybody logs in to the dashboard again.
  4. Run ragkv fsck to check that everything is consistent."""

REDIS_AWAY = (
    "Redis does not answer: dashboard sessions from before the restore have not ended. Delete ragkv:session:* and "
    "ragkv:recent:* in Redis before you start the service."
)
SHOWN_KEYS = 20


@click.command()
@click.argument("folder", type=FOLDER)
def backup(folder: Path) -> None:
    """Write the database and all uploaded files to FOLDER, while the service runs.

    FOLDER must be empty or new. KV is not included: it is computed again after a restore.
    """
    with opened_parts() as parts:
        manifest = write_backup(folder, parts.database, parts.files)
    documents, mib = manifest.rows_in("documents"), manifest.num_bytes / 2**20
    click.echo(
        f"{plural(documents, 'document')} and {plural(manifest.num_files, 'file')} of {mib:,.1f} MiB are in {folder}."
    )
    if manifest.lost_files:
        click.echo(
            f"{len(manifest.lost_files):,} files that the database names were missing or damaged: run ragkv fsck.",
            err=True,
        )
    click.echo(manifest.notice, err=True)


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--replace", is_flag=True, help="Delete the service's existing data.")
@click.option("--with-deleted", is_flag=True, help="Bring back what was deleted since the backup.")
def restore(folder: Path, replace: bool, with_deleted: bool) -> None:
    """Restore a backup from FOLDER, into SQLite or PostgreSQL, regardless of which it came from.

    The whole backup is verified first, then the consequences are printed; with --replace at a terminal you are asked
    to confirm them. Either all of the backup is restored, or nothing is. Revoked API keys stay revoked; what was
    deleted since the backup stays deleted, except --with-deleted.
    """

    def announce(expected: Consequences) -> None:
        click.echo("\n".join(_told(expected, replace=replace)), err=True)
        if replace and sys.stdin.isatty():
            click.confirm("Restore this backup?", abort=True, err=True)

    with opened_parts() as parts:
        restored = put_back(folder, parts, replace=replace, with_deleted=with_deleted, announce=announce)
    points = "" if restored.points is None else f", {plural(restored.points, 'vector')}"
    click.echo(f"Restored: {plural(restored.documents, 'document')} and {plural(restored.files, 'file')}{points}.")
    if restored.lost_files:
        click.echo(
            f"{restored.lost_files:,} files were lost before the backup: ragkv fsck --repair lists them.", err=True
        )
    if not restored.sessions_ended:
        click.echo(REDIS_AWAY, err=True)
    click.echo(NEXT_STEPS, err=True)


def _told(expected: Consequences, *, replace: bool) -> Iterator[str]:
    """One line for each consequence that there is."""
    yield f"The backup was made on {expected.made_at:%Y-%m-%d %H:%M} UTC. After the restore:"
    keys = ", ".join(key_id if key_id.isalnum() else ascii(key_id) for key_id in expected.valid_keys[:SHOWN_KEYS])
    more = " and others (ragkv keys list)" if len(expected.valid_keys) > SHOWN_KEYS else ""
    counts = {
        "documents in all": expected.documents,
        "documents that are not in the service now": expected.reappearing,
        "documents whose earlier file answers again": expected.older_files,
        "documents that stay deleted (--with-deleted brings them back)": expected.deleted,
        "newer documents that are lost": expected.lost,
        f"API keys that become valid ({keys}{more})": len(expected.valid_keys),
        "API keys that stay revoked": expected.revoked_keys,
        "newer API keys that are lost": expected.lost_keys,
        "messages of webhooks that are not sent again": expected.unsent,
    }
    yield from (f"  {what}: {count:,}" for what, count in counts.items() if count)
    yield "  collections, webhooks and data sources have the settings that they had then"
    if not replace:
        yield (
            "This service does not know what was deleted or revoked after the backup: it comes back. Revoke keys "
            "(ragkv keys revoke) and delete documents again before others can reach the service."
        )
