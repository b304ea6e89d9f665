"""`ragkv ingest PATH...`: ingest files in this process, without a queue."""

import sys
from pathlib import Path

import click
from rich.console import Console

from ragkv.cli.opened import opened_parts
from ragkv.service.base.tenants import DEFAULT_COLLECTION


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--collection", default=DEFAULT_COLLECTION, help="Id or name of the collection. One that is missing is made."
)
def ingest(paths: tuple[Path, ...], collection: str) -> None:
    """Ingest files and folders, including their subfolders.

    Files that were ingested before are skipped. A file that changed since then replaces what was made of the same path.
    A file that cannot be ingested is reported at the end, with exit code 1; the others are ingested all the same.
    """
    console = Console(stderr=True, soft_wrap=True)
    with opened_parts() as parts:
        # Torch and the parsers take seconds to import: `ragkv --help` must not wait for them.
        from ingest.local import read_paths  # noqa: PLC0415 - see above

        tally = read_paths(paths, parts, console, collection)
    replaced = f" ({tally.replaced} changed)" if tally.replaced else ""
    ingested_before = f", {tally.known} already known" if tally.known else ""
    console.print(f"{tally.read} ingested{replaced}{ingested_before}, {len(tally.failures)} failed", highlight=False)
    for path, reason in tally.failures:
        console.print(f"  {path}: {reason}", highlight=False, markup=False)
    if tally.failures:
        sys.exit(1)
