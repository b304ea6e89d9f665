"""`ragkv bench`: measurements on this machine, with this model and these documents."""

import asyncio
import os
from functools import partial
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bench.api import ApiReport, client_of, measure_asks, measure_load
from bench.measuring import check_folder, write_report
from bench.serve import MODES, Mode, Plan, ServeReport, Serving, contexts_of
from bench.tiers.command import tiers
from bench.ttft import SIZES, Bench, TtftReport, describe, machine, num_requests
from ragkv.answer.recompute import Recompute
from ragkv.cli.progress import progress_bars
from ragkv.cli.running import running_engine
from ragkv.parts import Parts
from ragkv.settings import Settings
from ragkv.stitch.select import block_size_of

_QUESTION = "What is said here, and by whom?"


@click.group()
def bench() -> None:
    """Measure on this machine, with the documents that were ingested."""


bench.add_command(tiers)


@bench.command()
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the rows as JSON.",
)
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Counted runs of each method.")
@click.option("--size", "sizes", type=click.IntRange(min=64), multiple=True, help="Context tokens; may be repeated.")
def ttft(json_file: Path | None, runs: int, sizes: tuple[int, ...]) -> None:
    """Measure the time to first token of full prefill, the prefix cache (the floor) and stitching."""
    parts = Parts(Settings.from_env(os.environ))
    try:
        report = asyncio.run(_measure(parts, sizes or SIZES, runs))
    finally:
        parts.close()
    table = Table(title=f"{report.model} on {report.machine}: seconds to first token, medians")
    rows = describe(report)
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(_number(name, value) for name, value in row.items()))
    Console().print(table)
    if json_file is not None:
        write_report(report, json_file)


@bench.command()
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="URL of the running service.")
@click.option("--key", help="An API key with the scope read, if the service requires one.")
@click.option(
    "--question", "questions", multiple=True, help="Question to ask; may be repeated.  [default: a generic one]"
)
@click.option("--asks", type=click.IntRange(min=0), default=50, show_default=True, help="Questions asked; 0: none.")
@click.option(
    "--clients", type=click.IntRange(min=0), default=200, show_default=True, help="Concurrent clients; 0: none."
)
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True, help="Requests of each client.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the figures as JSON.",
)
def api(
    url: str, key: str | None, questions: tuple[str, ...], asks: int, clients: int, rounds: int, json_file: Path | None
) -> None:
    """Measure a running service: its overhead over retrieval and engine, and its behaviour under many clients.

    Requests are limited by key: if the service requires keys, raise RAGKV_REQUESTS_PER_MINUTE, or most are refused.
    """
    report = asyncio.run(_measure_api(url, key, questions or (_QUESTION,), asks, clients, rounds))
    Console().print_json(msgspec.json.encode(report).decode())
    if json_file is not None:
        write_report(report, json_file)


@bench.command()
@click.option(
    "--clients", type=click.IntRange(1), default=16, show_default=True, help="Each asks one question after the other."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Questions a second instead, arriving at random.")
@click.option(
    "--context", type=click.IntRange(64), default=4096, show_default=True, help="Tokens of context of a question."
)
@click.option("--answer", type=click.IntRange(2), default=32, show_default=True, help="Tokens of an answer.")
@click.option("--questions", type=click.IntRange(1), default=32, show_default=True, help="Of each mode in a round.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--mode", "modes", type=click.Choice(MODES), multiple=True, help="May be repeated.  [default: all]")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the rows as JSON.",
)
def serve(
    clients: int, rate: float | None, context: int, answer: int, questions: int, rounds: int, modes: tuple[Mode, ...],
    json_file: Path | None,
) -> None:  # fmt: skip
    """Measure many questions at once: stitched as the settings say, in full, and from the engine's prefix cache.

    An engine of its own, over the documents of the default collection. Modes take turns.
    """
    check_folder("--json", json_file)
    plan = Plan(clients, rate, context, answer, questions, rounds, modes or MODES)
    parts = Parts(Settings.from_env(os.environ))
    try:
        report = asyncio.run(_measure_serving(parts, plan))
    finally:
        parts.close()
    Console().print(_serve_table(report))
    if json_file is not None:
        write_report(report, json_file)


async def _measure_serving(parts: Parts, plan: Plan) -> ServeReport:
    console = Console(stderr=True)
    parts.prepare()
    ref, settings = parts.default_collection, parts.settings
    chunks = parts.source.ready_chunks(ref.tenant_id, ref.collection_id)
    policy = settings.recompute_policy
    serving = Serving(
        engine=parts.engine,
        planner=parts.planner,
        keys=parts.keys_of(ref.tenant_id),
        recompute=Recompute(
            policy,
            settings.recompute_ratio,
            settings.block_size or block_size_of(policy),
            settings.recompute_max_tokens,
        ),
        contexts=contexts_of(chunks, plan, parts.prompts),
        answer_tokens=plan.answer_tokens,
    )
    async with running_engine(parts, console):
        with progress_bars(console) as progress:
            task = progress.add_task("measuring", total=plan.questions * plan.rounds * len(plan.modes))
            rows = await serving.measure(plan, lambda mode: progress.update(task, advance=1, description=mode))
    return ServeReport(Path(parts.model_folder).name, machine(), rows)


def _serve_table(report: ServeReport) -> Table:
    first = report.rows[0]
    asked = f"{first.clients} clients" if first.rate is None else f"{first.rate:g} questions a second"
    table = Table(title=f"{report.model} on {report.machine}: {asked}, {first.context_tokens:,} tokens of context")
    columns = ("mode", "questions/s", "first token p50, p95, p99 s", "between tokens p50, p99 ms", "errors")
    for name in columns:
        table.add_column(name, justify="right" if name != "mode" else "left")
    for row in report.rows:
        table.add_row(
            row.mode,
            f"{row.qps:.2f}",
            ", ".join(
                "-" if value is None else f"{value:.2f}" for value in (row.ttft_p50_s, row.ttft_p95_s, row.ttft_p99_s)
            ),
            ", ".join("-" if value is None else f"{value * 1e3:.0f}" for value in (row.itl_p50_s, row.itl_p99_s)),
            str(row.errors),
        )
    return table


async def _measure_api(
    url: str, key: str | None, questions: tuple[str, ...], asks: int, clients: int, rounds: int
) -> ApiReport:
    asking = {"max_tokens": 4}
    async with client_of(url, key, max(clients, 1)) as client:
        with progress_bars(Console(stderr=True)) as progress:
            task = progress.add_task("measuring", total=asks + clients * rounds)
            advance = partial(progress.advance, task)
            return ApiReport(
                url=url,
                machine=machine(),
                ask=await measure_asks(client, questions, asks, asking, advance) if asks else None,
                documents=await measure_load(client, "/v1/documents", clients, rounds, advance) if clients else None,
            )


async def _measure(parts: Parts, sizes: tuple[int, ...], runs: int) -> TtftReport:
    console = Console(stderr=True)
    parts.prepare()
    ref = parts.default_collection
    chunks = parts.source.ready_chunks(ref.tenant_id, ref.collection_id)
    measuring = Bench(
        engine=parts.engine,
        prompts=parts.prompts,
        planner=parts.planner,
        keys=parts.keys_of(parts.default_collection.tenant_id),
        policy=parts.settings.recompute_policy,
        block_size=parts.settings.block_size or block_size_of(parts.settings.recompute_policy),
    )
    measuring.check(chunks, sizes)
    async with running_engine(parts, console):
        with progress_bars(console) as progress:
            task = progress.add_task("measuring", total=num_requests(sizes, runs))
            done = measuring.measure(
                chunks, sizes, runs, lambda line: progress.update(task, advance=1, description=line)
            )
            rows = [row async for row in done]
    return TtftReport(Path(parts.model_folder).name, machine(), rows)


def _number(name: str, value: float) -> str:
    if name == "context":
        return f"{value:,}"
    return f"{value:.3f}" if name.endswith(" s") else f"{value:.2f}x"
