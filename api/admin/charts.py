"""Geometry of charts over time: positions of lines, bars and labels, which the templates draw.

Across, places are percent of the width, so that a chart is as wide as there is room; down, they are pixels.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from api.admin.format import duration, number, percent
from ragkv.service.statistics.views import Summary, Window

TOP, BOTTOM = 10.0, 200.0
"""The plot lies between these, with zero at the bottom."""
MAX_STEPS = 4
MAX_LABELS = 8
"""Labels of a history, at the moments of some of its measurements."""
NICE = (1, 2, 2.5, 5, 10)
EDGE = 3.0
"""Percent of the width at either end where no label fits."""

_LABEL_EVERY: dict[Window, timedelta] = {
    "1h": timedelta(minutes=15),
    "24h": timedelta(hours=6),
    "7d": timedelta(days=1),
}

ORIGINS = (
    ("stitched", "stitched"),
    ("cached", "in the engine's cache"),
    ("recomputed", "recomputed"),
    ("computed", "computed"),
)
"""From the bottom up: (field of Bucket, its name)."""


@dataclass(frozen=True, slots=True)
class AxisLabel:
    """A label or a time at a place on an axis."""

    at: float
    label: str
    moment: datetime | None = None


@dataclass(frozen=True, slots=True)
class Dot:
    """The point of one value."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class ChartLine:
    """Values of one kind in order of time. `path` is drawn in a box of 100 by pixels."""

    kind: str
    dots: tuple[Dot, ...]

    @property
    def path(self) -> str:
        return "M" + "L".join(f"{dot.x:.2f} {dot.y:.1f}" for dot in self.dots)


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A part of a stacked column."""

    kind: str
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """A time step: its values for the tip under the pointer and for the chart's table."""

    x: float
    width: float
    start: datetime
    cells: tuple[str, ...]
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. `heads` name the cells of its columns, which a chart over time has."""

    across: tuple[AxisLabel, ...]
    up: tuple[AxisLabel, ...]
    lines: tuple[ChartLine, ...] = ()
    bars: tuple[ChartBar, ...] = ()
    heads: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()

    @property
    def is_empty(self) -> bool:
        return all(column.is_empty for column in self.columns)


def first_token_chart(summary: Summary) -> Chart:
    """Medians of the time to first token: stitched, measured in full, and the stitched ones estimated in full."""
    medians = {
        "in-full": [bucket.stitched_in_full_ms for bucket in summary.series],
        "full": [bucket.full_ms for bucket in summary.series],
        "stitched": [bucket.stitched_ms for bucket in summary.series],
    }
    scale = AxisScale(max((ms or 0.0 for values in medians.values() for ms in values), default=0.0))
    places = [(index + 0.5) / len(summary.series) * 100 for index in range(len(summary.series))]
    lines = [_line(kind, places, values, scale) for kind, values in medians.items()]
    cells = [["–" if ms is None else duration(ms) for ms in medians[kind]] for kind in ("stitched", "in-full", "full")]
    return Chart(
        heads=("Questions", "Stitched", "The same in full, estimated", "Measured in full"),
        columns=_columns(summary, zip(*cells, strict=True)),
        across=_across(summary),
        up=scale.places(duration),
        lines=tuple(line for line in lines if line.dots),
    )


def origin_chart(summary: Summary) -> Chart:
    """Prompt tokens by origin, stacked."""
    tokens = [[getattr(bucket, kind) for kind, _ in ORIGINS] for bucket in summary.series]
    scale = AxisScale(max(map(sum, tokens), default=0))
    width = 100 / len(summary.series)
    bars, cells = [], []
    for index, (bucket, counts) in enumerate(zip(summary.series, tokens, strict=True)):
        for (kind, _), num_tokens, top in zip(ORIGINS, counts, accumulate(counts), strict=True):
            if num_tokens:
                y = scale.y(top)
                bars.append(ChartBar(kind, (index + 0.12) * width, 0.76 * width, y, scale.y(top - num_tokens) - y))
        saved = percent((bucket.stitched + bucket.cached) / sum(counts)) if sum(counts) else "–"
        cells.append([*map(number, counts), saved])
    return Chart(
        heads=("Questions", *(name.capitalize() for _, name in ORIGINS), "Saved"),
        columns=_columns(summary, cells),
        across=_across(summary),
        up=scale.places(number),
        bars=tuple(bars),
    )


@dataclass(frozen=True, slots=True)
class Measurement:
    """A moment of a history: a value of each kind, None where there is none, and the cells of its column."""

    moment: datetime
    values: tuple[float | None, ...]
    cells: tuple[str, ...]


def history_chart(
    history: Sequence[Measurement],
    kinds: Sequence[str],
    heads: tuple[str, ...],
    called: Callable[[float], str],
    highest: float = 0.0,
) -> Chart:
    """A line a kind over measurements in order of time, at equal distances whatever time lay between. The scale reaches
    up to `highest` at least; values below 0 are drawn there."""
    values = [value for measurement in history for value in measurement.values if value is not None]
    scale = AxisScale(max([highest, *values]))
    step = 100 / max(len(history), 1)
    places = [(index + 0.5) * step for index in range(len(history))]
    lines = [
        _line(kind, places, (measurement.values[index] for measurement in history), scale)
        for index, kind in enumerate(kinds)
    ]
    labelled = range(0, len(history), math.ceil(len(history) / MAX_LABELS) or 1)
    return Chart(
        heads=heads,
        columns=tuple(
            Column(i * step, step, measurement.moment, measurement.cells, is_empty=False)
            for i, measurement in enumerate(history)
        ),
        across=tuple(AxisLabel(places[index], "", history[index].moment) for index in labelled),
        up=scale.places(called),
        lines=tuple(line for line in lines if line.dots),
    )


class AxisScale:
    """Values from 0 to a round number not below the highest, in a few round steps."""

    def __init__(self, highest: float) -> None:
        self.step = 1.0
        if highest > 0:
            least = highest / MAX_STEPS
            power = 10.0 ** math.floor(math.log10(least))
            self.step = next(nice * power for nice in NICE if nice * power >= least * (1 - 1e-9))
        self.top = self.step * max(1, math.ceil(highest / self.step))

    def y(self, value: float) -> float:
        return BOTTOM - value / self.top * (BOTTOM - TOP)

    def places(self, called: Callable[[float], str]) -> tuple[AxisLabel, ...]:
        """A place for each step above 0."""
        values = [self.step * i for i in range(1, round(self.top / self.step) + 1)]
        return tuple(AxisLabel(self.y(value), called(value)) for value in values)


def _line(kind: str, places: Iterable[float], values: Iterable[float | None], scale: AxisScale) -> ChartLine:
    """The values that there are, at their places."""
    points = zip(places, values, strict=True)
    return ChartLine(kind, tuple(Dot(x, scale.y(max(value, 0.0))) for x, value in points if value is not None))


def _columns(summary: Summary, cells: Iterable[Iterable[str]]) -> tuple[Column, ...]:
    """A column for each time step: the number of questions, and these cells."""
    width = 100 / len(summary.series)
    return tuple(
        Column(index * width, width, bucket.start, (str(bucket.questions), *texts), bucket.questions == 0)
        for index, (bucket, texts) in enumerate(zip(summary.series, cells, strict=True))
    )


def _across(summary: Summary) -> tuple[AxisLabel, ...]:
    """Places at round times, except those so near an edge that the label would not fit."""
    every = _LABEL_EVERY[summary.window].total_seconds()
    start = summary.series[0].start.timestamp()
    length = summary.bucket_s * len(summary.series)
    earliest = math.ceil(start / every) * every
    moments = (earliest + i * every for i in range(math.floor((start + length - earliest) / every) + 1))
    places = (((moment - start) / length * 100, moment) for moment in moments)
    return tuple(
        AxisLabel(at, "", datetime.fromtimestamp(moment, summary.series[0].start.tzinfo))
        for at, moment in places
        if EDGE < at < 100 - EDGE
    )
