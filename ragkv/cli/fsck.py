"""`ragkv fsck`: check that rows, files, KV and vectors are consistent."""

import sys

import click
import msgspec
from rich.console import Console
from rich.table import Table

from ragkv.cli.opened import opened_parts
from ragkv.errors import RagKVError
from ragkv.service.checks.check import WHILE_RUNNING, WHILE_STOPPED
from ragkv.service.checks.fsck import examine
from ragkv.service.checks.fsck import repair as mend
from ragkv.service.parts import Parts

CLEAN, FOUND, CANNOT_RUN = 0, 1, 2
SHOWN = 3
"""Names of one kind in the table; JSON has all of them."""


@click.command()
@click.option("--repair", is_flag=True, help="Repair the problems found.")
@click.option("--quick", is_flag=True, help="Check only that KV files exist, without reading them.")
@click.option(
    "--stopped", is_flag=True, help="Assume that nothing else is running, and report recent leftovers as well."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def fsck(repair: bool, quick: bool, stopped: bool, as_json: bool) -> None:
    """Check that rows, files, KV and vectors are consistent.

    Safe while the service runs: recent items, which may belong to work in progress, are ignored (KV for a day, uploads
    for an hour). Exit code 0: no problems; 1: problems were found, and repaired with --repair; 2: the check failed.
    """
    grace = WHILE_STOPPED if stopped else WHILE_RUNNING
    try:
        with opened_parts(Parts.prepare) as parts:
            look = mend if repair else examine
            findings = list(look(grace, parts, quick=quick))
    except (RagKVError, OSError) as error:
        click.echo(f"ragkv: {error}", err=True)
        sys.exit(CANNOT_RUN)
    if as_json:
        click.echo(msgspec.json.encode({"findings": findings}).decode())
    else:
        table = Table("found", "", "with --repair", "", box=None)
        for finding in findings:
            count = len(finding.found)
            remedy = ("done: " if finding.mended else "") + finding.remedy if count else ""
            names = ", ".join(finding.found[:SHOWN]) + (" ..." if count > SHOWN else "")
            table.add_row(f"{count:,}", finding.about, remedy, names)
        Console(soft_wrap=True).print(table, highlight=False, markup=False)
        click.echo("Queue entries of deleted documents are harmless: a worker drops them.")
    sys.exit(FOUND if any(finding.found for finding in findings) else CLEAN)
