"""`ragkv eval stitching`: stitched KV with nothing recomputed against full prefill, without an engine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from bench.measuring import check_folder
from ingest.writer.command import FLOAT32
from ragkv.cli.opened import opened_parts
from ragkv.cli.progress import progress_bars
from ragkv.parts import Parts

if TYPE_CHECKING:
    from bench.fidelity.report import Estimate
    from bench.stitching.run import StitchingReport

_COLUMNS = ("KL", "of plain", "fail", "gain", "NLL")
_CAPTION = (
    "Means with 95% intervals. KL to full prefill and NLL of the known answer: nats a token. of plain: KL over that of the "
    "plain model's KV. fail: percent of the questions with a KL above 0.5. gain: share kept of what full prefill gains "
    "over no passages."
)


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Questions: JSON lines of question, answers, passages (title, text).",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of questions; the first are read.")
@click.option(
    "--writer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of a writer: measure its KV as well. It need not have passed its evaluation.",
)
@FLOAT32
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the intervals.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write rows and questions as JSON. Intermediate results are kept beside the file.",
)
def stitching(
    data: Path, limit: int | None, writer: Path | None, seed: int, json_file: Path | None, *, float32: bool
) -> None:
    """Compare stitched KV, with nothing recomputed, with full prefill.

    Each question is read over its own passages, in the order of the file, in plain Transformers: faster than
    `ragkv eval fidelity`, which measures times and recomputing through vLLM. An interrupted run resumes where it
    stopped when it is started again with the same --json.
    """
    check_folder("--json", json_file)
    # Torch takes seconds to import: `ragkv --help` must not wait for it.
    from bench.stitching.run import StitchingOptions, run  # noqa: PLC0415 - see above

    options = StitchingOptions(data, limit, writer, float32, seed, json_file)
    with opened_parts(Parts.prepare) as parts, progress_bars(Console(stderr=True)) as progress:
        task = progress.add_task("questions", total=None)
        report = run(options, parts, lambda done, total: progress.update(task, completed=done, total=total))
    Console().print(_table_of(report))


def _table_of(report: "StitchingReport") -> Table:
    title = f"{report.model}, {report.data}: {report.n} questions, NLL {report.nll_none:.3f} without passages, {report.nll_full:.3f} after full prefill"
    table = Table(title=title, caption=_CAPTION, box=None)
    table.add_column("KV", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for row in report.rows:
        cells = (
            _cell(row.kl, 3),
            _cell(row.kl_to_plain, 2),
            _cell(row.failures, 0),
            _cell(row.gain_kept, 2),
            _cell(row.nll, 3),
        )
        table.add_row(row.kv, *cells)
    return table


def _cell(estimate: "Estimate | None", digits: int) -> str:
    if estimate is None:
        return "-"
    around = "" if estimate.interval is None else " [{:.{d}f}, {:.{d}f}]".format(*estimate.interval, d=digits)
    return f"{estimate.mean:.{digits}f}{around}"
