"""`ragkv calibrate` and `ragkv calibrate-heads`: find the layers that select the tokens to recompute, and the heads
that rank passages; check them, and put them into use."""

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ragkv.calibration import Calibration, write_calibration
from ragkv.choosing import Choice
from ragkv.cli.opened import opened_parts
from ragkv.cli.progress import progress_bars
from ragkv.heads import Heads, write_heads
from ragkv.parts import Parts
from ragkv.tenancy import DEFAULT_COLLECTION


@click.command()
@click.option(
    "--collection", default=DEFAULT_COLLECTION, show_default=True, help="Collection whose chunks to calibrate on."
)
@click.option(
    "--clozes",
    type=click.IntRange(12),
    default=24,
    show_default=True,
    help="Clozes to choose on, and as many to check on.",
)
@click.option(
    "--target-kl",
    type=click.FloatRange(0, min_open=True),
    default=0.05,
    show_default=True,
    help="Highest KL to accept.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--layers", help="Check and use these layers, written as in RAGKV_CHOOSING_LAYERS.")
@click.option(
    "--sink-aware/--no-sink-aware", default=True, show_default=True, help="Check --layers with attention to the prefix."
)
def calibrate(collection: str, clozes: int, target_kl: float, seed: int, layers: str | None, sink_aware: bool) -> None:
    """Find the layers whose attention best selects what to recompute.

    Questions are sentences of the collection with a name or number left out: no labels are needed. The layers are
    checked on other contexts against the default and against random blocks, and used from the next start of the
    service. Takes minutes.
    """
    from ingest.calibrate.run import Plan  # noqa: PLC0415 - seconds to import, needed here alone
    from ingest.calibrate.run import calibrate as run  # noqa: PLC0415 - see above

    console = Console(stderr=True)
    choice = Choice.of(layers, sink_aware) if layers else None
    with opened_parts(Parts.prepare) as parts:
        with progress_bars(console) as bar:
            phases = ("checking",) if choice else ("choosing", "comparing", "checking")
            tasks = {phase: bar.add_task(phase, total=clozes) for phase in phases}
            found = run(
                parts,
                Plan(collection, clozes, target_kl, seed, choice),
                lambda phase, done: bar.update(tasks[phase], completed=done),
            )
        console.print(_table(found), highlight=False)
        write_calibration(parts.settings.calibration_file, found)
    click.echo("in use from the next start of the service, unless RAGKV_CHOOSING_LAYERS or RAGKV_SINK_AWARE is set")


@click.command("calibrate-heads")
@click.option(
    "--collection",
    default=DEFAULT_COLLECTION,
    show_default=True,
    help="Collection to calibrate on, if no --documents are given.",
)
@click.option(
    "--documents",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="File or folder to calibrate on; it need not be ingested. May be given several times.",
)
@click.option(
    "--clozes",
    type=click.IntRange(12),
    default=48,
    show_default=True,
    help="Clozes to choose on, and as many to check on.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--to", type=click.Path(path_type=Path), help="File to write, instead of putting the heads into use.")
def calibrate_heads(collection: str, documents: tuple[Path, ...], clozes: int, seed: int, to: Path | None) -> None:
    """Find the heads whose attention ranks passages best (RAGKV_RERANKER=qcache).

    Questions are sentences with a name or number left out: no labels are needed. The heads are checked on other text,
    and used from the next start of the service. Takes minutes.
    """
    from ingest.calibrate.heads import HeadsPlan, find_heads  # noqa: PLC0415 - seconds to import, needed here alone
    from ingest.writer.corpus import chunks_of_collection, chunks_of_files  # noqa: PLC0415 - see above

    console = Console(stderr=True)
    with opened_parts(Parts.prepare) as parts:
        chunks = chunks_of_files(documents, parts) if documents else chunks_of_collection(collection, parts)
        source = ", ".join(path.name for path in documents) or collection
        with progress_bars(console) as bar:
            tasks = {phase: bar.add_task(phase, total=clozes) for phase in ("choosing", "checking")}
            found = find_heads(
                parts,
                chunks,
                HeadsPlan(source, clozes, seed),
                lambda phase, done: bar.update(tasks[phase], completed=done),
            )
        console.print(_table(found), highlight=False)
        write_heads(to or parts.settings.heads_file, found)
    click.echo(f"written to {to}" if to else "in use from the next start of the service, with RAGKV_RERANKER=qcache")


def _table(found: Calibration | Heads) -> Table:
    table = Table(box=None, show_header=False)
    for name, value in found.described():
        table.add_row(name, value)
    return table
