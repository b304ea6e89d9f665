"""`ragkv eval fidelity`: how close stitched answers are to full prefill's, on questions with known answers."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.measuring import INPUT, OUTPUT, json_option
from ragkv.errors import Rejected
from ragkv.files_io import read_json
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import COMPRESSING, Compression, CompressionMethod
from ragkv.settings import Settings
from ragkv.stitch.policies import SETTING, Choice


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Questions: JSON lines of question, answers, passages (title, text).",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of questions; the first are asked.")
@click.option("--methods", help="Comma-separated names.  [default: all]")
@click.option("--ratios", default="0.05,0.1,0.2", help="Shares of the context to recompute.")
@click.option(
    "--passages", type=click.IntRange(min=1), help="Pad contexts to this many passages, with those of other questions."
)
@click.option(
    "--writer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of a writer: measure each stitching method over its KV as well.",
)
@click.option(
    "--formats", help="Comma-separated formats of KV, int8 and int4: measure each stitching method over them as well."
)
@click.option(
    "--compress",
    help=f"Comma-separated methods that leave out tokens of each chunk ({', '.join(COMPRESSING)}): measure each stitching "
    "method over what they keep as well, of the writer's KV if there is a --writer.",
)
@click.option("--keep", default="0.5,0.3,0.15", help="Shares of each chunk's tokens that --compress keeps.")
@click.option(
    "--layers",
    multiple=True,
    help=f"Layers that select, written as in {SETTING}: measure each method that selects by the question with them as well. May be given several times.",
)
@click.option("--seed", type=int, default=0, help="Seed of the padding and the intervals.")
@json_option("Write the rows as JSON. Intermediate results are kept beside the file.")
@click.option("--plot", "plot_file", type=OUTPUT, help="Draw quality against time, as PNG.")
def fidelity(
    methods: str | None,
    ratios: str,
    formats: str | None,
    compress: str | None,
    keep: str,
    layers: tuple[str, ...],
    plot_file: Path | None,
    **values: Any,
) -> None:
    """Compare answers, probabilities and times of stitching with full prefill.

    Each question is asked with its own passages as context, through vLLM. An interrupted run resumes where it stopped
    when it is started again with the same --json.
    """
    # Torch takes seconds to import: `ragkv --help` must not wait for it.
    from bench.fidelity.evaluate import FidelityOptions, evaluate  # noqa: PLC0415 - see above
    from bench.fidelity.plot import check_can_plot, plot  # noqa: PLC0415 - see above
    from bench.fidelity.report import table_of  # noqa: PLC0415 - see above

    if plot_file is not None:
        check_can_plot()
    options = FidelityOptions(
        methods=names_of(methods),
        ratios=ratios_of(ratios),
        formats=formats_of(formats),
        compressions=compressions_of(compress, keep),
        choices=choices_of(layers),
        **values,
    )
    report = evaluate(options, Settings.from_env(os.environ), Console(stderr=True))
    if plot_file is not None:
        plot([report], plot_file)
    Console().print(table_of(report))


@click.command("plot")
@click.argument("reports", nargs=-1, required=True, type=INPUT)
@click.argument("picture", type=OUTPUT)
def draw(reports: tuple[Path, ...], picture: Path) -> None:
    """Draw REPORTS of `ragkv eval fidelity --json` about the same questions as one PICTURE, a PNG.

    Quality is plotted against how many times sooner than full prefill the first token came. Of several rows with the
    same name, that of the first report is drawn.
    """
    from bench.fidelity.plot import check_can_plot, plot  # noqa: PLC0415 - see fidelity
    from bench.fidelity.report import FidelityReport  # noqa: PLC0415 - see fidelity

    check_can_plot()
    parsed = (read_json(file, FidelityReport, hint="the file holds no such report") for file in reports)
    read = [report for report in parsed if report is not None]
    if len({(report.model, report.data, report.n, report.passages) for report in read}) > 1:
        raise Rejected("the reports differ in their questions or their model")
    plot(read, picture)


def names_of(text: str | None) -> tuple[str, ...] | None:
    """The names in a comma-separated option, each once."""
    return None if text is None else tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def _known(option: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    names = names_of(text) or ()
    if unknown := [name for name in names if name not in known]:
        raise Rejected(f"{option}: there is no {', '.join(unknown)}, choose from {', '.join(known)}")
    return names


def formats_of(text: str | None) -> tuple[str, ...]:
    """The formats in `--formats`, each once. Raises Rejected for what is none."""
    return _known("--formats", text, [name.value for name in KVFormat if name is not KVFormat.BF16])


def compressions_of(names: str | None, keep: str) -> tuple[Compression, ...]:
    """Each method of `--compress` at each ratio of `--keep`, each once. Raises Rejected for what is none."""
    methods = _known("--compress", names, COMPRESSING)
    try:
        ratios = list(dict.fromkeys(float(ratio) for ratio in keep.split(",")))
    except ValueError:
        ratios = []
    if not ratios or not all(0 < ratio < 1 for ratio in ratios):
        raise Rejected(f"--keep {keep}: give comma-separated numbers between 0 and 1, like 0.5,0.3")
    return tuple(Compression(CompressionMethod(method), ratio) for method in methods for ratio in ratios)


def choices_of(texts: Sequence[str]) -> tuple[Choice, ...]:
    """The choices in `--layers`, each once. Raises Rejected for what is none."""
    return tuple(dict.fromkeys(map(Choice.of, texts)))


def ratios_of(text: str) -> tuple[float, ...]:
    """The ratios in `--ratios`, each once. Raises Rejected for what is none."""
    try:
        ratios = tuple(dict.fromkeys(float(ratio) for ratio in text.split(",")))
    except ValueError:
        raise Rejected(f"--ratios {text}: give comma-separated numbers, like 0.05,0.1") from None
    if not all(0 <= ratio <= 1 for ratio in ratios):
        raise Rejected(f"--ratios {text}: each must be between 0 and 1; at 0 nothing is recomputed")
    return ratios
