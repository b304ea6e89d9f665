"""Plot quality against time from a report."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fidelity.methods import DEFAULT, NONE
from bench.fidelity.report import FidelityReport, FidelityRow
from ragkv.errors import Rejected

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES = (13, 5.5)
_DOTS_PER_INCH = 130


def check_can_plot() -> None:
    """Check for matplotlib. Raises Rejected, saying what to install, where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise Rejected("--plot needs matplotlib: pip install 'ragkv[plot]'")


def plot(report: FidelityReport, file: Path) -> None:
    """Writes a PNG of KL and of gain kept against TTFT. A policy's ratios are a line; no context is left out."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and a second to import

    rows = [row for row in report.rows if row.method != NONE]
    figure = Figure(_SIZE_INCHES, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw(left, rows, lambda row: row.kl, "KL to full prefill, nats a token (lower is better)")
    _draw(right, rows, lambda row: row.gain_kept, "share of full prefill's gain kept (higher is better)")
    right.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    figure.suptitle(f"{report.model}, {report.data}, {report.n} questions. {report.machine}", fontsize=9)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, fontsize=8)
    figure.savefig(file, dpi=_DOTS_PER_INCH, format="png")


def _draw(
    axes: "Axes", rows: Iterable[FidelityRow], figure_of: Callable[[FidelityRow], float | None], label: str
) -> None:
    from matplotlib import colormaps  # noqa: PLC0415 - see plot

    for number, (method, line) in enumerate(_lines(rows, figure_of).items()):
        marker, size = ("*", 14) if method == DEFAULT else ("os^Dv"[number % 5], 5)
        seconds, figures, _ = zip(*line, strict=True)
        color = "black" if method == DEFAULT else colormaps["tab20"](number % 20)
        axes.plot(seconds, figures, marker=marker, markersize=size, linewidth=1.2, color=color, label=method)
        for x, y, ratio in line:
            if ratio is not None:
                axes.annotate(f"{ratio:g}", (x, y), textcoords="offset points", xytext=(4, 3), fontsize=6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.set_xlabel("time to first token, seconds (median)")
    axes.set_ylabel(label)
    axes.grid(visible=True, which="both", linewidth=0.3)


_Point = tuple[float, float, float | None]


def _lines(
    rows: Iterable[FidelityRow], figure_of: Callable[[FidelityRow], float | None]
) -> dict[str, Sequence[_Point]]:
    """For each method its (seconds, figure, ratio), by ratio. A row without the figure is no point."""
    lines: dict[str, list[_Point]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.ratio or 0.0):
        figure = figure_of(row)
        if figure is not None:
            lines[row.method].append((row.ttft_s, figure, row.ratio))
    return dict(lines)
