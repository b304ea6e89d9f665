"""`ragkv eval arena`: KVShareArena's metric, with this service's engine and settings."""

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from bench.fidelity.command import names_of, ratios_of
from bench.measuring import check_folder, write_report
from ragkv.settings import Settings

if TYPE_CHECKING:
    from bench.arena.results import ArenaRun

METHODS = "ape,legolink,deviation,infoflow,question,default"


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Questions: JSON lines as for `eval fidelity`, or a frozen set of KVShareArena.",
)
@click.option("--subset", help="Name of the set in the results.  [default: the file's]")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of questions; the first are asked.")
@click.option("--methods", default=METHODS, show_default=True, help="Comma-separated names, as for `eval fidelity`.")
@click.option("--ratios", default="0.1", show_default=True, help="Shares of the context to recompute.")
@click.option(
    "--results",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write files in the arena's formats into this folder. An interrupted run resumes.",
)
def arena(data: Path, subset: str | None, limit: int | None, methods: str, ratios: str, folder: Path | None) -> None:
    """Measure the share of the context's gain that methods keep (PGR), as KVShareArena does.

    Full prefill, no context and naive stitching are always measured.

    \b
    F1        word F1 of the greedy answer, percent
    PGR       (F1 - no context's) / (full prefill's - no context's)
    to naive  F1 less that of chunks prefilled alone, nothing recomputed; 95% interval
    redone    percent of the context's layer-tokens that run at answer time
    saved     percent of full prefill's time to first token
    """  # noqa: D301 - click's marker is the character itself
    check_folder("--results", folder)
    # Torch takes seconds to import: `ragkv --help` must not wait for it.
    from bench.arena.results import ArenaRun  # noqa: PLC0415 - see above
    from bench.fidelity.evaluate import FidelityOptions, measured  # noqa: PLC0415 - see above
    from bench.fidelity.methods import NAIVE  # noqa: PLC0415 - see above

    if folder is not None:
        folder.mkdir(exist_ok=True)
    wanted = (NAIVE, *(names_of(methods) or ()))
    records_beside = folder and folder / "leaderboard.json"
    options = FidelityOptions(data, limit, wanted, ratios_of(ratios), None, 0, records_beside, one_order=True)
    with measured(options, Settings.from_env(os.environ), Console(stderr=True)) as run:
        queryset = {"file": data.name, "sha256": hashlib.sha256(data.read_bytes()).hexdigest()}
        done = ArenaRun(run, subset or re.sub(r"_n\d+$", "", data.stem), queryset)
        if folder is not None:
            _write_all(done, folder)
    Console().print(_table(done))


def _write_all(done: "ArenaRun", folder: Path) -> None:
    for method in done.run.methods:
        write_report(done.result(method), folder / f"{re.sub(r'[^a-z0-9.]+', '-', method.key)}.json")
    write_report(done.anchors(), folder / "anchors.json")
    write_report(done.board(), folder / "leaderboard.json")


def _table(done: "ArenaRun") -> Table:
    table = Table(title=f"{done.run.model}, {done.subset}: {len(done.ids)} questions", box=None, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for column in ("F1", "PGR", "to naive", "redone", "saved"):
        table.add_column(column, justify="right", no_wrap=True)
    for method in done.run.methods:
        pgr, delta = done.pgr(method.key), done.to_naive(method.key)
        low, high = delta.interval
        table.add_row(
            method.key,
            f"{100 * done.mean_f1(method.key):.1f}",
            "-" if pgr is None else f"{pgr:.2f}",
            f"{100 * delta.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]",
            f"{100 * done.recompute_share(method):.1f}",
            f"{100 * done.ttft_saved(method.key):.0f}",
        )
    return table
