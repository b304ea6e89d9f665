"""Plot a GPU report as SVG."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.gpu.report import GpuReport
from bench.gpu.streams import StreamRow
from bench.ttft import TtftRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL_INCHES = (6.0, 4.2)
_COLUMNS = 3

_LOADING = ("{0.source}, {0.kv_format}", "bf16_gb_s", "GB of bfloat16 KV a second")
_SERVING = ("{0.clients} clients, {0.mode}", "qps", "questions a second, {0.context_tokens:,} tokens of context")
_INGESTION = ("{0.work}", "tokens_per_s", "tokens a second")

_Draw = Callable[["Axes", Sequence[Any]], None]


def can_plot() -> bool:
    """Whether matplotlib is there (pip install 'ragkv[lab]')."""
    return find_spec("matplotlib") is not None


def plot(report: GpuReport, file: Path) -> bool:
    """Write a panel for each part that has a shape worth seeing. False, and no file, if none was measured."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415 - likewise

    by_part: tuple[tuple[str, _Draw, Mapping[str, Sequence[Any]]], ...] = (
        ("time to first token", _draw_ttft, report.ttft),
        ("loading KV", partial(_draw_bars, *_LOADING), report.load),
        ("questions a second", partial(_draw_bars, *_SERVING), report.serve),
        ("running streams while prompts arrive", _draw_latency, report.latency),
        ("ingestion", partial(_draw_bars, *_INGESTION), report.ingest),
    )
    panels = [(f"{title}, {model}", draw, rows) for title, draw, of in by_part for model, rows in of.items()]
    if not panels:
        return False
    columns = min(len(panels), _COLUMNS)
    lines = -(-len(panels) // columns)
    figure = Figure((_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * lines), layout="constrained")
    grid = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, (title, draw, rows) in zip(grid, panels, strict=False):
        draw(axes, rows)
        axes.set_title(title, fontsize=10)
        axes.grid(visible=True, linewidth=0.3)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    figure.suptitle(f"{report.device}, {versions}, {report.date}", fontsize=9)
    with rc_context({"svg.fonttype": "none"}):  # text as text
        figure.savefig(file, format="svg")
    return True


def _draw_ttft(axes: "Axes", rows: Sequence[TtftRow]) -> None:
    for method, ratio in dict.fromkeys((row.method, row.ratio) for row in rows):
        line = [row for row in rows if (row.method, row.ratio) == (method, ratio)]
        name = {"full": "full prefill", "floor": "prefix-cache hit"}.get(
            method, f"stitched, {ratio or 0:.0%} recomputed"
        )
        style = "-" if ratio is not None else "--"
        axes.plot([row.context_tokens for row in line], [row.ttft_s for row in line], style, marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("seconds (median)")
    axes.legend(fontsize=7)


def _draw_bars(name: str, length: str, label: str, axes: "Axes", rows: Sequence[Any]) -> None:
    """A bar for each row: the template of its name, the field that is its length, the template of the axis's label."""
    bars = {name.format(row): getattr(row, length) for row in rows}
    axes.barh(list(bars), list(bars.values()))
    axes.invert_yaxis()
    axes.set_xlabel(label.format(rows[0]))


def _draw_latency(axes: "Axes", rows: Sequence[StreamRow]) -> None:
    names = [f"{row.arriving} arrives" for row in rows]
    axes.barh(names, [row.itl_p99_s * 1e3 for row in rows], label="99th percentile")
    axes.barh(names, [row.itl_p50_s * 1e3 for row in rows], label="median")
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds between tokens")
    axes.legend(fontsize=7)
