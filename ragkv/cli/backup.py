"""`ragkv backup` and `ragkv restore`."""

from pathlib import Path

import click

from ragkv.cli.opened import opened_parts
from ragkv.counts import plural
from ragkv.upkeep.backup import backup as write_backup
from ragkv.upkeep.restore import restore as put_back

FOLDER = click.Path(file_okay=False, path_type=Path)
NEXT_STEPS = """\
Next:
  1. Restart the API and the workers: running processes hold data from before the restore.
  2. Documents can be searched at once; a worker computes their KV again (ragkv status shows the progress).
  3. Run ragkv fsck to check that everything is consistent."""


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
def restore(folder: Path, replace: bool) -> None:
    """Restore a backup from FOLDER, into SQLite or PostgreSQL, regardless of which it came from.

    The whole backup is verified first. Either all of it is restored, or nothing is.
    """
    with opened_parts() as parts:
        restored = put_back(folder, parts, replace=replace)
    points = "" if restored.points is None else f", {plural(restored.points, 'vector')}"
    click.echo(f"Restored: {plural(restored.documents, 'document')} and {plural(restored.files, 'file')}{points}.")
    if restored.lost_files:
        click.echo(
            f"{restored.lost_files:,} files were lost before the backup: ragkv fsck --repair lists them.", err=True
        )
    click.echo(NEXT_STEPS, err=True)
