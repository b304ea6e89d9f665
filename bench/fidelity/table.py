"""Format the report as a table for a terminal."""

from rich.table import Table

from bench.fidelity.report import FidelityReport, FidelityRow

_COLUMNS = ("F1", "gain", "order", "KL", "fail", "/rand", "same", "TTFT", "x", "redo")
_CAPTION = (
    "F1, fail (KL above 0.5), same (the greedy answer as full prefill's): percent. KL to full prefill: nats a token. "
    "gain: share kept of what full prefill gains over no context, in retrieval's order; order: the same, in the row's own "
    "order. /rand: KL over random's at the same ratio, geometric mean. TTFT: median seconds, without retrieval; x: times "
    "faster than full prefill. redo: tokens recomputed."
)


def table_of(report: FidelityReport) -> Table:
    """A line a row; it fits 80 columns."""
    title = f"{report.model}, {report.data}: {report.n} questions"
    table = Table(title=title, caption=_CAPTION, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in report.rows:
        name = row.method if row.ratio is None else f"{row.method} {row.ratio:g}"
        table.add_row(name, *_cells(row))
    return table


def _cells(row: FidelityRow) -> tuple[str, ...]:
    return (
        f"{row.f1:.1f}",
        *("-" if gain is None else f"{gain:.2f}" for gain in (row.gain_kept, row.gain_in_order)),
        f"{row.kl:.3f}",
        f"{row.failures:.0f}",
        "-" if row.kl_to_random is None else f"{row.kl_to_random.mean:.2f}",
        f"{row.agree:.0f}",
        f"{row.ttft_s:.2f}",
        f"{row.ttft_speedup:.1f}",
        f"{row.recomputed_tokens:.0f}",
    )
