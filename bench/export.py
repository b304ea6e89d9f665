"""`ragkv eval export`: a collection's rated questions as data with known answers."""

from pathlib import Path

import click
import msgspec

from bench.measuring import check_folder
from ragkv.cli.opened import opened_parts, tenant_id_of
from ragkv.errors import Rejected
from ragkv.service.base.tenancy import DEFAULT_COLLECTION, DEFAULT_TENANT
from ragkv.service.base.tenants import collection_ref
from ragkv.service.parts import Parts
from ragkv.service.questions.questions import evaluation_set


@click.command()
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Tenant whose collection it is.")
@click.option("--collection", default=DEFAULT_COLLECTION, show_default=True, help="Id or name of the collection.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write to this file.  [default: standard output]",
)
def export(tenant: str, collection: str, output: Path | None) -> None:
    """Write the rated questions of a collection as JSON lines, for `ragkv eval fidelity --data`.

    The known answer is the corrected one, or the one that was rated up. Questions that do not have all the passages of
    their prompt any more are left out.
    """
    check_folder("--output", output)
    with opened_parts(Parts.prepare_database) as parts:
        tenant_id = tenant_id_of(tenant, parts.database)
        rows = list(evaluation_set(collection_ref(tenant_id, collection, parts.database), parts.database))
    questions = [question for question in rows if question is not None]
    if not questions:
        raise Rejected(
            f"{collection}: no question has an answer that was corrected or rated up and all of its passages"
        )
    lines = b"".join(msgspec.json.encode(question) + b"\n" for question in questions)
    if output is None:
        click.echo(lines, nl=False)
    else:
        output.write_bytes(lines)
    click.echo(f"{len(questions):,} questions written, {rows.count(None):,} left out", err=True)
