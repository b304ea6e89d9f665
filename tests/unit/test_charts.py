"""Where the lines, bars and labels of the dashboard's charts stand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.admin.charts import BOTTOM, TOP, AxisScale, Measurement, first_token_chart, history_chart, origin_chart
from api.admin.format import duration, faster, number, percent
from api.admin.questions import DRAWN, fidelity_chart, retrieval_chart
from ragkv.service.evaluations.outcome import EvaluationRun, FidelityFigures, RetrievalFigures
from ragkv.service.statistics.views import Bucket, FirstToken, Jobs, Questions, Summary, TokenCounts

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


def hour_of(*buckets: Bucket) -> Summary:
    first = FirstToken(stitched=None, full=None, stitched_in_full=None, hint=None)
    return Summary(
        window="1h",
        since=NOON,
        until=NOON + timedelta(hours=1),
        questions=Questions(0, 0, 0),
        first_token=first,
        tokens=TokenCounts(),
        hit_rate=None,
        jobs=Jobs(),
        bucket_s=60,
        series=list(buckets),
    )


def minutes(number_of: int, **last: object) -> list[Bucket]:
    starts = [NOON + timedelta(minutes=i) for i in range(number_of)]
    return [*(Bucket(start=start) for start in starts[:-1]), Bucket(start=starts[-1], **last)]


@pytest.mark.parametrize(
    ("highest", "step", "top"), [(7, 2, 8), (8, 2, 8), (183, 50, 200), (1210, 500, 1500), (0, 1, 1)]
)
def test_scales_end_at_a_round_number_in_few_steps(highest: float, step: float, top: float):
    scale = AxisScale(highest)

    assert (scale.step, scale.top) == (step, top)
    assert (scale.y(0), scale.y(top)) == (BOTTOM, TOP)
    assert len(scale.places(number)) <= 4


def test_a_chart_of_nothing_is_empty():
    chart = first_token_chart(hour_of(*minutes(60)))

    assert chart.is_empty
    assert (chart.lines, origin_chart(hour_of(*minutes(60))).bars) == ((), ())


def test_a_value_stands_in_the_middle_of_its_step():
    chart = first_token_chart(hour_of(*minutes(10, questions=1, stitched_ms=100.0)))
    (line,) = chart.lines

    assert (line.kind, line.dots[0].x, line.dots[0].y) == ("stitched", 95, TOP)
    assert chart.columns[-1].cells == ("1", "100 ms", "–", "–")
    assert (chart.columns[-1].x, chart.columns[-1].width) == (90, 10)


def test_bars_stand_on_each_other_and_reach_the_sum():
    chart = origin_chart(hour_of(*minutes(10, questions=1, stitched=500, cached=100, recomputed=200, computed=200)))

    assert [bar.kind for bar in chart.bars] == ["stitched", "cached", "recomputed", "computed"]
    for below, above in zip(chart.bars, chart.bars[1:], strict=False):
        assert below.y == pytest.approx(above.y + above.height)
    assert (chart.bars[0].y + chart.bars[0].height, chart.bars[-1].y) == (BOTTOM, pytest.approx(TOP))
    assert chart.columns[-1].cells[-1] == "60%"


def test_labels_stand_at_round_moments_away_from_the_edges():
    across = origin_chart(hour_of(*minutes(61))).across

    assert [place.moment.strftime("%H:%M") for place in across] == ["12:15", "12:30", "12:45"]
    assert across[1].at == pytest.approx(30 / 61 * 100)


def test_numbers_as_people_read_them():
    assert [duration(ms) for ms in (8.24, 182.4, 1210, 14_000)] == ["8.2 ms", "182 ms", "1.21 s", "14.0 s"]
    assert [faster(times) for times in (2.34, 1, 0.5)] == ["2.3× faster", "1.0× faster", "2.0× slower"]
    shares = (0, 0.032, 0.09999, 0.84, 0.997, 0.9999, 1)
    assert [percent(share) for share in shares] == ["0%", "3.2%", "10%", "84%", "99.7%", "100%", "100%"]


def test_a_history_has_equal_steps_and_leaves_out_what_has_no_value():
    moments = [NOON, NOON + timedelta(minutes=1), NOON + timedelta(days=9), NOON + timedelta(days=10)]
    history = [
        Measurement(moment, (1.0, value), (f"{value}",))
        for moment, value in zip(moments, (0.9, None, -0.2, 0.95), strict=True)
    ]

    chart = history_chart(history, ("in-full", "stitched"), ("Kept",), lambda value: f"{value:g}", 1.0)

    full, stitched = chart.lines
    assert [dot.x for dot in full.dots] == [12.5, 37.5, 62.5, 87.5]
    assert [dot.x for dot in stitched.dots] == [12.5, 62.5, 87.5]
    assert {dot.y for dot in full.dots} == {TOP}
    assert stitched.dots[1].y == BOTTOM
    assert [place.moment for place in chart.across] == moments
    assert [place.label for place in chart.up] == ["0.25", "0.5", "0.75", "1"]


def test_a_long_history_is_labelled_now_and_then():
    history = [Measurement(NOON + timedelta(days=day), (1.0,), ("1",)) for day in range(50)]

    assert len(history_chart(history, ("stitched",), ("Kept",), str).across) <= 8


def test_runs_of_other_kinds_take_no_place_in_a_chart_of_evaluations():
    """Newest first: some without figures, many of retrieval, and behind them those of fidelity."""
    fidelity = FidelityFigures(
        questions=9, skipped=0, with_answer=0, gain_kept=0.9, gain_kept_interval=None, kl=0.01, kl_interval=None,
        kl_high=0.0, agree=90.0, f1=None, f1_full=None, ttft_ms=10.0, ttft_full_ms=90.0, speedup=9.0, recomputed=0.1,
        passages_without_kv=0.0,
    )  # fmt: skip
    retrieval = RetrievalFigures(
        questions=9, skipped=0, recall_at_2=80.0, recall_at_5=90.0, recall_at_10=95.0, recall_at_5_interval=None,
        all_at_5=80.0, mrr=70.0, search_ms=5.0,
    )  # fmt: skip
    figures = [None] * 2 + [{"kind": "retrieval", "retrieval": retrieval}] * (DRAWN + 1) + [{"fidelity": fidelity}] * 2
    runs = [evaluation(NOON - timedelta(hours=hours), **(given or {})) for hours, given in enumerate(figures)]

    drawn, searched = fidelity_chart(runs), retrieval_chart(runs)

    assert drawn is not None and [column.start for column in drawn.columns] == [runs[-1].ended_at, runs[-2].ended_at]
    assert searched is not None and len(searched.columns) == DRAWN
    assert searched.columns[-1].start == runs[2].ended_at


def evaluation(moment: datetime, **given: Any) -> EvaluationRun:
    facts = {"kind": "fidelity", "source": "rated", "collection_id": "0" * 32, "collection": "default", "state": "done"}
    fields = {"total": 9, "done": 9, "settings": None, "fidelity": None, "retrieval": None, "error": None}
    return EvaluationRun(id="1" * 32, **(facts | fields | given), created_at=moment, ended_at=moment)
