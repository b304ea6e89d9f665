"""`ragkv eval stitching`: stitched KV with nothing recomputed against full prefill, without an engine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from bench.fidelity.command import QUESTIONS
from bench.measuring import check_folder, json_option
from ingest.writer.command import FLOAT32
from ragkv.cli.opened import opened_parts
from ragkv.cli.progress import progress_bars
from ragkv.parts import Parts

if TYPE_CHECKING:
    from bench.fidelity.report import Estimate
    from bench.stitching.run import StitchingReport

_COLUMNS = ("KL", "of plain", "fail", "gain", "NLL")
_CAPTION = (
    "Means, some with 95% intervals. KL to full prefill and NLL of the known answer: nats a token. of plain: KL over that "
    "of the plain model's KV. fail: percent of the questions with a KL above 0.5. gain: share kept of what full prefill "
    "gains over no passages."
)


@click.command()
@QUESTIONS
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of questions; the first are read.")
@click.option(
    "--writer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of a writer: measure its KV as well. It need not have passed its evaluation.",
)
@FLOAT32
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the intervals.")
@json_option("Write rows and questions as JSON. Intermediate results are kept beside the file.")
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
    """A line for each kind of KV, between no passages and full prefill; it fits 80 columns."""
    title = f"{report.model}, {report.data}: {report.n} questions"
    table = Table(title=title, caption=_CAPTION, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("KV", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_row("no passages", *"---", "0", f"{report.nll_none:.3f}")
    for row in report.rows:
        fail, nll = (_mean(row.failures, 0), _mean(row.nll, 3))
        table.add_row(
            row.kv,
            _with_interval(row.kl, 3),
            _with_interval(row.kl_to_plain, 2),
            fail,
            _with_interval(row.gain_kept, 2),
            nll,
        )
    table.add_row("full prefill", "0", "-", "0", "1", f"{report.nll_full:.3f}")
    return table


def _mean(estimate: "Estimate | None", digits: int) -> str:
    return "-" if estimate is None else f"{estimate.mean:.{digits}f}"


def _with_interval(estimate: "Estimate | None", digits: int) -> str:
    if estimate is None or estimate.interval is None:
        return _mean(estimate, digits)
    low, high = estimate.interval
    return f"{estimate.mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
