"""Plot quality against time from reports."""

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fidelity.methods import FULL, NONE
from bench.fidelity.report import FidelityReport, FidelityRow
from ragkv.errors import Rejected

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES = (13, 5.5)
_DOTS_PER_INCH = 130
_OF_THE_SERVICE = ("default", "writer")
"""How the names of rows begin that a service has by its settings alone."""
_TICKS = (1, 2, 3, 5, 10, 20, 30, 50)
_LINE = 0.035
"""Height of a label, as a share of what the axis spans."""
_WIDTH = 2.0
"""Width of a label, as a factor on the axis of times."""


def check_can_plot() -> None:
    """Check for matplotlib. Raises Rejected, saying what to install, where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise Rejected("drawing needs matplotlib: pip install 'ragkv[lab]'")


def plot(reports: Sequence[FidelityReport], file: Path) -> None:
    """Write a PNG of KL and of gain against how many times sooner than full prefill the first token comes.

    Each point is a row: of those of one name in several reports, the first. No context is left out. Times are ratios
    within a report, so that reports of the same questions from several runs may be drawn together.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and a second to import

    # Full prefill is one point, whatever its order: each row is held against that in its own.
    rows = {
        _label(row): row
        for report in reversed(reports)
        for row in report.rows
        if row.method == FULL or not (row.method == NONE or row.method.startswith(FULL))
    }
    figure = Figure(_SIZE_INCHES, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw(left, rows.values(), lambda row: row.kl, "KL to full prefill, nats a token (lower is better)")
    _draw(right, rows.values(), lambda row: row.gain_in_order, "share of full prefill's gain kept (higher is better)")
    right.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    report = reports[0]
    figure.suptitle(f"{report.model}, {report.data}, {report.n} questions. {report.machine}", fontsize=9)
    figure.savefig(file, dpi=_DOTS_PER_INCH, format="png")


def _draw(
    axes: "Axes", rows: Iterable[FidelityRow], figure_of: Callable[[FidelityRow], float | None], label: str
) -> None:
    points = sorted((figure, _label(row), row) for row in rows if (figure := figure_of(row)) is not None)
    line = _LINE * (points[-1][0] - points[0][0])
    labels: list[tuple[float, float]] = []
    for figure, name, row in points:
        is_ours = row.method.startswith(_OF_THE_SERVICE)
        color = "tab:red" if is_ours else "black" if row.method == FULL else "tab:blue"
        axes.plot(
            row.ttft_speedup, figure, marker="*" if is_ours else "o", markersize=13 if is_ours else 5, color=color
        )
        # Each label right of its point, and above those that it would cover.
        below = [height + line for x, height in labels if 1 / _WIDTH < x / row.ttft_speedup < _WIDTH]
        labels.append((row.ttft_speedup, max([figure, *below])))
        axes.text(1.07 * row.ttft_speedup, labels[-1][1], name, fontsize=8, color=color, va="center")
    axes.margins(y=0.08)
    axes.set_xscale("log")
    axes.set_xlim(0.8, 2.5 * max(row.ttft_speedup for _, _, row in points))
    axes.set_xticks([tick for tick in _TICKS if tick < axes.get_xlim()[1]], minor=False)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("first token: times sooner than full prefill (median)")
    axes.set_ylabel(label)
    axes.grid(visible=True, linewidth=0.3)


def _label(row: FidelityRow) -> str:
    if row.method == FULL:
        return "full prefill"
    return row.method if row.ratio is None else f"{row.method} {row.ratio:.0%}"
