"""A tenant's questions: aggregated over a time window in equal steps, and the latest ones individually."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ragkv.ids import utc_now
from ragkv.service.base.database import Database, Session
from ragkv.service.base.page import view_from
from ragkv.service.base.tables import QuestionRow
from ragkv.service.statistics.prefill_cost import CostEstimate, estimate
from ragkv.service.statistics.statements import (
    full_percentiles,
    latest_questions,
    load_percentiles,
    token_series,
    token_totals,
    ttft_percentiles,
    unfinished_jobs,
)
from ragkv.service.statistics.views import (
    AskedQuestion,
    Bucket,
    FirstToken,
    FullCost,
    HitRate,
    Jobs,
    Percentiles,
    Questions,
    Summary,
    TierLoads,
    TokenCounts,
    Window,
)

WINDOWS: Mapping[Window, tuple[timedelta, int]] = {
    "1h": (timedelta(hours=1), 60),
    "24h": (timedelta(days=1), 1800),
    "7d": (timedelta(days=7), 3 * 3600),
}
"""How long each is, and the seconds of one step of its series."""

ASK_STITCHED = "no question was stitched in this period: ask one"
ASK_IN_FULL = 'no measurement of full prefill on this machine yet: ask once with mode "full"'

_Totals = dict[str, tuple[int, ...]]
"""By mode, as `token_totals` has them: questions, failed chunks, tokens from the disk and from the object store,
tokens."""
_MS_OF = {"stitched": "stitched_ms", "full": "full_ms"}
_NEAREST_FIRST = ("host", "disk", "remote")
_SERIES_TOKENS = ("cached", "stitched", "recomputed", "computed")


def summary(tenant_id: str, model: str, window: Window, database: Database, now: datetime | None = None) -> Summary:
    """Statistics of the window that ends now. `model`: the name of the one that is served now."""
    until = now or utc_now()
    length, width_s = WINDOWS[window]
    since = until - length
    with database.reading() as session:
        full_cost = estimate(session, tenant_id, model, until)
        totals: _Totals = {mode: tuple(sums) for mode, *sums in session.execute(token_totals(tenant_id, since))}
        tokens = [sum(column) for column in zip(*(sums[4:] for sums in totals.values()), strict=True)]
        counts = {mode: sums[0] for mode, sums in totals.items()}
        return Summary(
            window=window,
            since=since,
            until=until,
            questions=Questions(sum(counts.values()), counts.get("stitched", 0), counts.get("full", 0)),
            first_token=_first_token(session, tenant_id, since, full_cost),
            tokens=_counts(tokens) if tokens else TokenCounts(),
            hit_rate=_hit_rate(totals),
            jobs=Jobs(
                **{status.value: number for status, number in session.execute(unfinished_jobs(tenant_id, since))}
            ),
            bucket_s=width_s,
            series=_series(session, tenant_id, (since, until), width_s, full_cost),
        )


def tier_use(
    tenant_id: str, window: Window, database: Database, now: datetime | None = None
) -> tuple[HitRate | None, list[TierLoads]]:
    """The origins of stitched prompts, and the time that placing their KV took by tier, in the window that ends now."""
    since = (now or utc_now()) - WINDOWS[window][0]
    with database.reading() as session:
        totals: _Totals = {mode: tuple(sums) for mode, *sums in session.execute(token_totals(tenant_id, since))}
        loads = [TierLoads(*row) for row in session.execute(load_percentiles(tenant_id, since))]
    return _hit_rate(totals), sorted(loads, key=lambda one: _NEAREST_FIRST.index(one.tier))


def latest(tenant_id: str, model: str, limit: int, database: Database) -> list[AskedQuestion]:
    """The latest questions, newest first, whenever they were asked."""
    with database.reading() as session:
        full_cost = estimate(session, tenant_id, model, utc_now())
        return [_asked(row, name, full_cost) for row, name in session.execute(latest_questions(tenant_id, limit))]


def _counts(sums: Sequence[int]) -> TokenCounts:
    """From sums in the order of TokenCounts' fields, without the last."""
    prompt, cached, stitched, recomputed, computed, completion = sums
    return TokenCounts(prompt, cached, stitched, recomputed, computed, completion, saved=cached + stitched)


def _hit_rate(totals: _Totals) -> HitRate | None:
    if "stitched" not in totals:
        return None
    _, failed, disk, remote, prompt, cached, stitched, recomputed, computed, _ = totals["stitched"]
    return HitRate(
        device=cached / prompt,
        host=(stitched - disk - remote) / prompt,
        disk=disk / prompt,
        remote=remote / prompt,
        recomputed=recomputed / prompt,
        computed=computed / prompt,
        failed_chunks=failed,
    )


def _first_token(session: Session, tenant_id: str, since: datetime, full_cost: CostEstimate | None) -> FirstToken:
    percentiles = {mode: Percentiles(*ms) for mode, *ms in session.execute(ttft_percentiles(tenant_id, since))}
    stitched, full = percentiles.get("stitched"), percentiles.get("full")
    if stitched is None:
        return FirstToken(stitched=None, full=full, stitched_in_full=None, hint=ASK_STITCHED)
    if full_cost is None:
        return FirstToken(stitched=stitched, full=full, stitched_in_full=None, hint=ASK_IN_FULL)
    _, median, high = session.execute(full_percentiles(tenant_id, since, full_cost.cost.terms)).one()
    in_full = FullCost(
        p50_ms=median,
        p95_ms=high,
        times_sooner=median / stitched.p50_ms,
        basis=full_cost.basis,
        runs=full_cost.runs,
    )
    return FirstToken(stitched=stitched, full=full, stitched_in_full=in_full, hint=None)


def _series(
    session: Session, tenant_id: str, between: tuple[datetime, datetime], width_s: int, full_cost: CostEstimate | None
) -> list[Bucket]:
    """Every step between the moments, empty ones too. Steps begin at whole multiples of their length, so that they stay
    where they are as time goes on: the first may reach back before the first moment, and counts from it on."""
    since, until = between
    numbers = range(int(since.timestamp()) // width_s, int(until.timestamp()) // width_s + 1)
    buckets: dict[int, dict[str, Any]] = {number: {} for number in numbers}

    def put(number: int, **values: object) -> None:
        """A database that rounds seconds up may name the step after the last."""
        buckets[min(number, numbers[-1])] |= values

    for number, questions, _, *tokens, _ in session.execute(token_series(tenant_id, since, width_s)):
        put(number, questions=questions, **dict(zip(_SERIES_TOKENS, tokens, strict=True)))
    for number, mode, median, _ in session.execute(ttft_percentiles(tenant_id, since, width_s)):
        put(number, **{_MS_OF[mode]: median})
    if full_cost is not None:
        for number, median, _ in session.execute(full_percentiles(tenant_id, since, full_cost.cost.terms, width_s)):
            put(number, stitched_in_full_ms=median)
    return [Bucket(start=datetime.fromtimestamp(number * width_s, UTC), **buckets[number]) for number in numbers]


def _asked(row: QuestionRow, collection: str, full_cost: CostEstimate | None) -> AskedQuestion:
    in_full_ms = None
    if full_cost is not None and row.mode == "stitched":
        computed = row.prompt_tokens - row.cached_tokens
        in_full_ms = row.retrieve_ms + full_cost.cost.of(computed, row.cached_tokens)
    return view_from(
        AskedQuestion,
        row,
        collection=collection,
        in_full_ms=in_full_ms,
        tokens=_counts(
            (
                row.prompt_tokens,
                row.cached_tokens,
                row.stitched_tokens,
                row.recomputed_tokens,
                row.computed_tokens,
                row.completion_tokens,
            )
        ),
    )
