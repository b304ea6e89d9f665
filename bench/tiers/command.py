"""`ragkv bench tiers`: eviction policies over a trace of requests, compared by their effect on the time to first
token."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec
from rich import filesize
from rich.console import Console
from rich.table import Table

from bench.measuring import INPUT, json_option, write_report
from bench.plan import bandwidth_option, figures, measure_option, served
from bench.tiers.replay import Bandwidths, Costs
from bench.tiers.run import Report, Trial
from bench.tiers.workload import Workload, exported_log, logged, read_trace, retrieved, zipf
from ragkv.cli.opened import opened_parts
from ragkv.cli.progress import progress_bars
from ragkv.kv.eviction import EVICTION, known_policy
from ragkv.service.base.tenants import DEFAULT_TENANT
from ragkv.service.parts import Parts
from ragkv.service.planning.plan import DISK, MEMORY, TIERS, Device, by_name, check_rates
from ragkv.service.planning.shape import shape_of

_SHARE = click.FloatRange(0, 1, min_open=True)
_CAPTION = (
    "mean, p95: seconds to load or compute a request's chunks; gain: of the mean, over the first policy. belady: evicts what is used "
    "again latest, of all requests known beforehand. bound: no policy's mean is below it."
)


class TiersReport(msgspec.Struct, frozen=True, kw_only=True):
    """bandwidths: GB a second."""

    model: str
    bandwidths: dict[str, float]
    workloads: list[Report]


@click.command()
@click.option("--trace", "traces", type=INPUT, multiple=True, help="Requests in Mooncake's format; may be repeated.")
@click.option(
    "--zipf", "exponents", type=click.FloatRange(0, 5), multiple=True, help="Zipf exponent of synthetic requests; may be repeated."
)  # fmt: skip
@click.option(
    "--questions",
    "exports",
    type=INPUT,
    multiple=True,
    help="Export of this service's log of questions, each searched again; may be repeated.",
)
@click.option(
    "--collection",
    "collections",
    multiple=True,
    help="Name or id of a collection whose logged questions to replay; may be repeated.",
)
@click.option("--tenant", default=DEFAULT_TENANT, help="Tenant of the questions.")
@click.option("--chunks", type=click.IntRange(2), default=20_000, help="Chunks of the synthetic corpus.")
@click.option("--requests", type=click.IntRange(2), default=40_000, help="Synthetic requests.")
@click.option("--top-k", type=click.IntRange(1), default=16, help="Chunks of a synthetic request.")
@click.option("--policy", "policies", multiple=True, help="Name of a policy; may be repeated.  [default: all]")
@click.option("--budget", type=_SHARE, default=0.25, help="Host and disk together, as a share of the corpus.")
@click.option("--host", type=click.FloatRange(0, 1), default=0.2, help="The host's share of that.")
@click.option("--int4", type=click.FloatRange(0, 1), default=0.0, help="Share of chunks in int4.")
@click.option(
    "--half-life",
    type=click.FloatRange(0, min_open=True),
    help="Half-life of a use in seconds.  [default: half of the budget's share of the trace's time]",
)
@click.option("--model", help="Name, folder or config file, as for `ragkv plan`.  [default: the served model]")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Prefill rate, tokens a second.  [default: an H100's]"
)
@bandwidth_option
@measure_option
@json_option("Write the figures as JSON.")
def tiers(
    *,
    traces: Sequence[Path],
    exponents: Sequence[float],
    policies: Sequence[str],
    model: str | None,
    bandwidths: Sequence[str],
    measure: bool,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Replay requests for chunks through a host and a disk tier under each eviction policy, compared with the best that
    is possible.

    The host's chunks are on disk too. A chunk that is in neither is computed where it stands in the prompt, and
    written.
    """
    policies = policies or list(reversed(EVICTION))
    for name in policies:
        known_policy(name)
    workloads = [read_trace(file) for file in traces]
    size = (options["chunks"], options["requests"], options["top_k"])
    workloads += _asked(options["exports"], options["collections"], options["tenant"])
    workloads += [zipf(exponent, *size) for exponent in exponents or ([] if workloads else [1.0])]
    model, bandwidth, rate = served(model, figures("--bandwidth", bandwidths), options["rate"], measure=measure)
    gb_s = {tier.name: tier.bandwidth for tier in by_name(TIERS, bandwidth, {})}
    check_rates((rate or 1.0, *gb_s.values()))
    costs = Costs(shape_of(model), Device(rate=rate), Bandwidths(gb_s[MEMORY], gb_s[DISK]))
    reports = []
    console = Console(stderr=True)
    with progress_bars(console) as progress:
        task = progress.add_task(
            "replaying", total=sum(len(workload.requests) for workload in workloads) * (len(policies) + 1)
        )
        for workload in workloads:
            progress.update(task, description=workload.name)
            shares = (options["budget"], options["host"], options["int4"])
            trial = Trial(workload, costs, *shares, half_life_s=options["half_life"])
            reports.append(trial.run(policies, lambda: progress.advance(task)))
    report = TiersReport(model=costs.shape.name, bandwidths=asdict(costs.bandwidths), workloads=reports)
    write_report(report, json_file)
    for replayed in reports:
        _show(replayed, Console())


def _asked(exports: Sequence[Path], collections: Sequence[str], tenant: str) -> list[Workload]:
    """Workloads of logged questions. The numbers of questions left out are printed on standard error."""
    if not exports and not collections:
        return []
    console = Console(stderr=True)
    workloads = []
    with opened_parts(Parts.prepare_database) as parts, progress_bars(console) as progress:
        logs = [exported_log(file) for file in exports]
        logs += [logged(tenant, collection, parts.database) for collection in collections]
        task = progress.add_task("searching", total=sum(len(log.questions) for log in logs))
        for log in logs:
            workload, without = retrieved(log, tenant, parts, lambda: progress.advance(task))
            workloads.append(workload)
            console.print(
                f"{log.name}: {len(workload.requests):,} questions since {log.questions[0].asked_at:%Y-%m-%d %H:%M} searched again; left "
                f"out: {log.left_out:,} kept answers or records that are gone, {without:,} that find nothing now",
                highlight=False,
            )
    return workloads


def _show(report: Report, console: Console) -> None:
    sizes = [filesize.decimal(size) for size in (report.host_bytes, report.disk_bytes, report.corpus_bytes)]
    title = (
        f"{report.workload}: {report.requests:,} requests for {report.chunks:,} chunks; {sizes[0]} of host and {sizes[1]} of disk for "
        f"{sizes[2]}; half-life {report.half_life_s:,.0f} s"
    )
    table = Table(title=title, caption=_CAPTION, title_justify="left", caption_justify="left", box=None)
    for column in ("policy", "host hits", "disk hits", "mean s", "p95 s", "gain", "loaded", "written"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    baseline = report.outcomes[0].mean_s
    for outcome in report.outcomes:
        table.add_row(
            outcome.policy,
            f"{outcome.host_hits:.1%}",
            f"{outcome.disk_hits:.1%}",
            f"{outcome.mean_s:.4g}",
            f"{outcome.p95_s:.4g}",
            f"{1 - outcome.mean_s / baseline:.1%}",
            filesize.decimal(outcome.loaded_bytes),
            filesize.decimal(outcome.written_bytes),
        )
    table.add_row("bound", "", "", f"{report.bound_s:.4g}", "", f"{1 - report.bound_s / baseline:.1%}", "", "")
    console.print(table, highlight=False)
