"""A tenant's questions within a window of time, summed up."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ragkv.clock import utc_now
from ragkv.db.database import Database
from ragkv.db.statistics import full_percentiles, token_totals, ttft_percentiles, unfinished_jobs
from ragkv.statistics.basis import Known, known_price
from ragkv.statistics.series import series
from ragkv.statistics.views import (
    FirstToken,
    FullCost,
    HitRate,
    Jobs,
    Percentiles,
    Questions,
    Summary,
    TokenCounts,
    Window,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

WINDOWS: Mapping[Window, tuple[timedelta, int]] = {
    "1h": (timedelta(hours=1), 60),
    "24h": (timedelta(days=1), 1800),
    "7d": (timedelta(days=7), 3 * 3600),
}
"""How long each is, and the seconds of one step of its series."""

ASK_STITCHED = "no question was stitched in this time: ask one"
ASK_IN_FULL = 'nothing is known of full prefill on this machine: ask once with mode "full"'

_Totals = dict[str, tuple[int, ...]]
"""By mode, as `token_totals` has them: questions, failed chunks, tokens from the disk, tokens."""


def summary(database: Database, tenant_id: str, model: str, window: Window, now: datetime | None = None) -> Summary:
    """What the tenant's questions took in the window that ends now. `model`: the name of the one that is served now."""
    until = now or utc_now()
    length, width_s = WINDOWS[window]
    since = until - length
    with database.reading() as session:
        known = known_price(session, tenant_id, model, until)
        totals: _Totals = {mode: tuple(sums) for mode, *sums in session.execute(token_totals(tenant_id, since))}
        return Summary(
            window=window,
            since=since,
            until=until,
            questions=_questions(totals),
            first_token=_first_token(session, tenant_id, since, known),
            tokens=_tokens(totals),
            hit_rate=_hit_rate(totals),
            jobs=_jobs(session, tenant_id, since),
            bucket_s=width_s,
            series=series(session, tenant_id, (since, until), width_s, known),
        )


def counts(sums: Sequence[int]) -> TokenCounts:
    """From sums in the order of TokenCounts' fields, without the last."""
    prompt, cached, stitched, recomputed, computed, completion = sums
    return TokenCounts(prompt, cached, stitched, recomputed, computed, completion, saved=cached + stitched)


def _questions(totals: _Totals) -> Questions:
    by_mode = {mode: sums[0] for mode, sums in totals.items()}
    return Questions(sum(by_mode.values()), by_mode.get("stitched", 0), by_mode.get("full", 0))


def _tokens(totals: _Totals) -> TokenCounts:
    sums = [sum(column) for column in zip(*(row[3:] for row in totals.values()), strict=True)]
    return counts(sums) if sums else TokenCounts()


def _hit_rate(totals: _Totals) -> HitRate | None:
    if "stitched" not in totals:
        return None
    _, failed, disk, prompt, cached, stitched, recomputed, computed, _ = totals["stitched"]
    return HitRate(
        device=cached / prompt,
        host=(stitched - disk) / prompt,
        disk=disk / prompt,
        recomputed=recomputed / prompt,
        computed=computed / prompt,
        failed_chunks=failed,
    )


def _first_token(session: "Session", tenant_id: str, since: datetime, known: Known | None) -> FirstToken:
    found = {mode: Percentiles(*ms) for mode, *ms in session.execute(ttft_percentiles(tenant_id, since))}
    stitched = found.get("stitched")
    in_full = None
    if stitched is not None and known is not None:
        _, median, high = session.execute(full_percentiles(tenant_id, since, known.price.terms)).one()
        in_full = FullCost(
            p50_ms=median, p95_ms=high, times_sooner=median / stitched.p50_ms, basis=known.basis, runs=known.runs
        )
    return FirstToken(stitched=stitched, full=found.get("full"), stitched_in_full=in_full, hint=_hint(stitched, known))


def _hint(stitched: Percentiles | None, known: Known | None) -> str | None:
    if stitched is None:
        return ASK_STITCHED
    return ASK_IN_FULL if known is None else None


def _jobs(session: "Session", tenant_id: str, since: datetime) -> Jobs:
    found = session.execute(unfinished_jobs(tenant_id, since))
    return Jobs(**{status.value: number for status, number in found})
