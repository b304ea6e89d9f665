"""Summarise the outcomes of all questions in one row per method."""

import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.table import Table as ConsoleTable

from bench.fidelity.measure import Record
from bench.fidelity.methods import NONE, RANDOM, Method
from ragkv.service.evaluations.metrics import FAILURE_KL, Floats, gain_kept, geometric_ratio, interval, ratio, resamples

_DIGITS = 4
Interval = tuple[float, float]


class Estimate(msgspec.Struct, frozen=True):
    """A mean over the questions with its 95% interval, which is null where more than 2.5% of the resamples have no
    value."""

    mean: float
    interval: Interval | None


class Difference(msgspec.Struct, frozen=True):
    """The row less another one, question by question, in the rows' units."""

    other: str
    f1: Estimate
    nll: Estimate
    kl: Estimate


class Intervals(msgspec.Struct, frozen=True):
    """95% intervals of a row's figures, over DRAWS resamples of the questions."""

    f1: Interval | None
    em: Interval | None
    nll: Interval | None
    gain_kept: Interval | None
    gain_in_order: Interval | None
    kl: Interval | None
    agree: Interval | None
    failures: Interval | None


class FidelityRow(msgspec.Struct, frozen=True):
    """One method at one ratio over `n` questions: means, but for `ttft_s` and `ttft_speedup`, which are medians.

    f1, em, agree: percent; agree is how often the greedy answer is the reference's. nll, kl: nats a token of the known
    answer; kl is to `reference`, full prefill of the same passages in the same order (for `none`: in the file's, or in
    retrieval's where nothing else is in the file's; where tokens are left out, of the whole passages). failures:
    percent of the questions with a kl above FAILURE_KL. kl_to_random: geometric mean over the questions of kl over the
    control's at the same ratio, null where that was not measured in the same order. gain_kept: the share of
    `gain_reference`'s gain over no context that is left, gain_in_order: that of `reference`'s, null where it gains
    nothing. ttft_speedup: `gain_reference`'s time over this one's, question by question. `to_random` is to the control
    at the same ratio and `to_policy` to the service's own policy at the same ratio, null where that was not measured in
    the same order. Of a variant (a writer's KV, KV in another format, or chunks with tokens left out), against the same
    method over the plain model's KV as it computed it: kl_to_plain: mean kl over its kl, null where its kl is 0;
    kl_of_plain: mean KL of its distribution to this one's; gain_less_plain: gain kept less its, null where
    `gain_reference` gains nothing.
    """

    method: str
    ratio: float | None
    n: int
    f1: float
    em: float
    nll: float
    gain_kept: float | None
    gain_in_order: float | None
    kl: float
    agree: float
    ttft_s: float
    recomputed_tokens: float
    context_tokens: float
    ttft_speedup: float
    failures: float
    kl_to_random: Estimate | None
    reference: str
    gain_reference: str
    intervals: Intervals
    to_full: Difference
    to_random: Difference | None
    to_policy: Difference | None
    kl_to_plain: Estimate | None
    kl_of_plain: Estimate | None
    gain_less_plain: Estimate | None


class FidelityReport(msgspec.Struct, frozen=True):
    """The report of `ragkv eval fidelity --json`. `n` questions of the file `data` were asked; contexts were padded to
    `passages`."""

    model: str
    data: str
    n: int
    rows: list[FidelityRow]
    machine: str
    seed: int
    passages: int | None


class Table:
    """The outcomes as arrays over questions, with one set of resamples for all."""

    def __init__(self, records: Sequence[Record], methods: Sequence[Method], policy: str, seed: int) -> None:
        """Every record has every method. policy: the service's own."""
        self._outcomes = {m.key: [record.outcomes[m.key] for record in records] for m in methods}
        self._draws: NDArray[np.intp] = resamples(len(records), seed)
        self._methods = {method.key: method for method in methods}
        self._policy = policy

    def rows(self) -> list[FidelityRow]:
        return [self._row(method) for method in self._methods.values()]

    def _row(self, method: Method) -> FidelityRow:
        key, full_key = method.key, method.gain_reference
        outcomes, full = self._outcomes[key], self._outcomes[full_key]
        estimates = {name: self._estimate(self._values(key, name)) for name in ("f1", "em", "nll", "kl", "agree")}
        estimates["failures"] = self._estimate(100.0 * (self._values(key, "kl") > FAILURE_KL))
        gain_share, kept_interval = self._gain_kept(key, full_key)
        in_order, in_order_interval = self._gain_kept(key, method.reference)
        kl_to_plain, kl_of_plain, gain_less_plain = self._to_plain(method)
        return FidelityRow(
            method=method.name,
            ratio=method.ratio,
            n=len(outcomes),
            **{name: estimate.mean for name, estimate in estimates.items()},
            gain_kept=gain_share,
            gain_in_order=in_order,
            kl_to_random=self._kl_to_random(method),
            ttft_s=_rounded(statistics.median(o.ttft_s for o in outcomes)),
            recomputed_tokens=_rounded(statistics.fmean(o.recomputed_tokens for o in outcomes)),
            context_tokens=_rounded(statistics.fmean(o.context_tokens for o in outcomes)),
            ttft_speedup=_rounded(statistics.median(f.ttft_s / o.ttft_s for f, o in zip(full, outcomes, strict=True))),
            reference=method.reference,
            gain_reference=method.gain_reference,
            intervals=Intervals(
                **{name: estimate.interval for name, estimate in estimates.items()},
                gain_kept=kept_interval,
                gain_in_order=in_order_interval,
            ),
            to_full=self._difference(key, full_key),
            to_random=self._to_policy(method, RANDOM),
            to_policy=self._to_policy(method, self._policy),
            kl_to_plain=kl_to_plain,
            kl_of_plain=kl_of_plain,
            gain_less_plain=gain_less_plain,
        )

    def _estimate(self, values: Floats) -> Estimate:
        return Estimate(_rounded(values.mean()), _rounded_interval(values[self._draws].mean(1)))

    def _values(self, key: str, name: str) -> Floats:
        """One figure of one method, [questions], in the row's unit."""
        values = np.array([float(getattr(outcome, name)) for outcome in self._outcomes[key]])
        return values * (100 if name in {"f1", "em", "agree"} else 1)

    def _gain_kept(self, key: str, full_key: str) -> tuple[float | None, Interval | None]:
        share = estimate_if(*self._gains(key, full_key))
        return (None, None) if share is None else (share.mean, share.interval)

    def _gains(self, key: str, full_key: str) -> tuple[Floats, Floats]:
        """The gain kept over all questions, and that over each resample."""
        nlls = [self._values(method_key, "nll") for method_key in (NONE, key, full_key)]
        return gain_kept(*(nll.mean() for nll in nlls)), gain_kept(*(nll[self._draws].mean(1) for nll in nlls))

    def _kl_to_random(self, method: Method) -> Estimate | None:
        control = self._at_same_ratio(method, RANDOM)
        if control is None:
            return None
        ours, theirs = self._values(method.key, "kl"), self._values(control, "kl")
        drawn = geometric_ratio(ours[self._draws], theirs[self._draws])
        return Estimate(_rounded(geometric_ratio(ours, theirs)), _rounded_interval(drawn))

    def _to_plain(self, method: Method) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
        """kl_to_plain, kl_of_plain and gain_less_plain."""
        if method.plain is None:
            return None, None, None
        ours, theirs = self._values(method.key, "kl"), self._values(method.plain, "kl")
        drawn = ratio(ours[self._draws].mean(1), theirs[self._draws].mean(1))
        gain, drawn_gains = self._gains(method.key, method.gain_reference)
        plain_gain, drawn_plain_gains = self._gains(method.plain, method.gain_reference)
        return (
            estimate_if(ratio(ours.mean(), theirs.mean()), drawn),
            self._estimate(self._values(method.key, "kl_of_plain")),
            estimate_if(gain - plain_gain, drawn_gains - drawn_plain_gains),
        )

    def _to_policy(self, method: Method, policy: str) -> Difference | None:
        """The row less that policy's at the same ratio."""
        control = self._at_same_ratio(method, policy)
        return None if control is None else self._difference(method.key, control)

    def _at_same_ratio(self, method: Method, policy: str) -> str | None:
        """The key of that policy at the method's ratio, None if it was not measured over passages in the method's
        order."""
        control = self._methods.get(Method(policy, method.prepare, method.ratio).key)
        if method.ratio is None or control is None or control.reference != method.reference:
            return None
        return control.key

    def _difference(self, key: str, other: str) -> Difference:
        names = ("f1", "nll", "kl")
        return Difference(other, *(self._estimate(self._values(key, n) - self._values(other, n)) for n in names))


def estimate_if(value: Floats, drawn: Floats) -> Estimate | None:
    """None for a figure without a value."""
    return None if np.isnan(value) else Estimate(_rounded(value), _rounded_interval(drawn))


def _rounded(value: float | Floats) -> float:
    return round(float(value), _DIGITS)


def _rounded_interval(drawn: Floats) -> Interval | None:
    around = interval(drawn)
    return None if around is None else (_rounded(around[0]), _rounded(around[1]))


_COLUMNS = ("F1", "gain", "order", "KL", "fail", "/rand", "same", "TTFT", "x", "redo")
_CAPTION = (
    "F1, fail (KL above 0.5), same (the greedy answer as full prefill's): percent. KL to full prefill: nats a token. "
    "gain: share kept of what full prefill gains over no context, in retrieval's order; order: the same, in the row's own "
    "order. /rand: KL over random's at the same ratio, geometric mean. TTFT: median seconds, without retrieval; x: times "
    "faster than full prefill. redo: tokens recomputed."
)


def table_of(report: FidelityReport) -> ConsoleTable:
    """A line a row; it fits 80 columns."""
    title = f"{report.model}, {report.data}: {report.n} questions"
    table = ConsoleTable(title=title, caption=_CAPTION, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method")  # where names are long they wrap, not figures
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in report.rows:
        name = row.method if row.ratio is None else f"{row.method} {row.ratio:g}"
        table.add_row(
            name,
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
    return table
