"""`ragkv bench`: measurements on this machine, with this model and these documents."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bench.api import ApiReport, client_of, measure_asks
from bench.measuring import json_option, write_report
from bench.ttft import SIZES, Bench, TtftReport, describe, machine, num_requests
from ragkv.chunk import Chunk
from ragkv.cli.opened import COLLECTION, opened_parts, running_engine
from ragkv.cli.progress import progress_bars
from ragkv.errors import Rejected
from ragkv.service.base.tenants import DEFAULT_COLLECTION, collection_ref
from ragkv.service.parts import Parts
from ragkv.stitch.policies import POLICIES
from ragkv.stitch.select import block_size_of

_QUESTION = "What is said here, and by whom?"


_ELSEWHERE = {
    "gpu": "bench.gpu.command:gpu",
    "remote": "bench.remote:remote",
    "serve": "bench.serving.command:serve",
    "tiers": "bench.tiers.command:tiers",
}
"""Commands that are imported when they are asked for: with PyTorch and models that takes seconds."""


@contextmanager
def measuring_bar(total: int, console: Console) -> Iterator[Callable[[str], None]]:
    """A bar of measurements. Call what this yields after each, with what it was."""
    with progress_bars(console) as bars:
        task = bars.add_task("measuring", total=total)
        yield lambda what: bars.update(task, advance=1, description=what)


def chunks_to_measure(parts: Parts, collection: str) -> list[Chunk]:
    """Chunks of the collection that have KV. Raises NotFound, and Rejected for a policy that needs the question's
    vectors: plans are made without a service here, which would ask the engine for them."""
    policy = parts.settings.recompute_policy
    if POLICIES[policy].needs_question_vectors:
        raise Rejected(
            f"RAGKV_RECOMPUTE_POLICY={policy} needs the question's vectors, which are not computed here: set another policy"
        )
    ref = collection_ref(parts.default_collection.tenant_id, collection, parts.database)
    return parts.source.ready_chunks(ref.tenant_id, ref.collection_id)


class _Bench(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *_ELSEWHERE])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _ELSEWHERE:
            return super().get_command(context, name)
        command: click.Command = resolve_name(_ELSEWHERE[name])
        return command


@click.group(cls=_Bench)
def bench() -> None:
    """Measure speed on this machine."""


@bench.command()
@json_option("Write the rows as JSON.")
@COLLECTION
@click.option("--runs", type=click.IntRange(min=1), default=5, help="Measured runs of each method.")
@click.option("--size", "sizes", type=click.IntRange(min=64), multiple=True, help="Context tokens; may be repeated.")
def ttft(json_file: Path | None, collection: str, runs: int, sizes: tuple[int, ...]) -> None:
    """Measure the time to first token of full prefill, the prefix cache (the floor) and stitching."""
    with opened_parts(Parts.prepare) as parts:
        report = asyncio.run(_measure(parts, sizes or SIZES, runs, collection))
    Console().print(table_of(report))
    write_report(report, json_file)


def table_of(report: TtftReport) -> Table:
    """A line a size; it fits 80 columns."""
    title = f"{report.model} on {report.machine}: seconds to first token, medians; percents: stitched, with so much recomputed"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    rows = describe(report)
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        context = row.pop("context")
        figures = (f"{value:.3f}" if name.endswith(" s") else f"{value:.2f}x" for name, value in row.items())
        table.add_row(f"{context:,}", *figures)
    return table


@bench.command()
@click.option("--url", default="http://127.0.0.1:8000", help="URL of the running service.")
@click.option("--key", help="An API key with the scope read, if the service requires one.")
@click.option(
    "--question", "questions", multiple=True, help="Question to ask; may be repeated.  [default: a generic one]"
)
@click.option("--asks", type=click.IntRange(min=1), default=50, help="Questions asked.")
@COLLECTION
@json_option("Write the figures as JSON.")
def api(
    url: str, key: str | None, questions: tuple[str, ...], asks: int, collection: str, json_file: Path | None
) -> None:
    """Measure a running service: its overhead over retrieval and engine.

    Requests are limited by key: if the service requires keys, set RAGKV_REQUESTS_PER_MINUTE and
    RAGKV_TENANT_REQUESTS_PER_MINUTE to 0, or most will be refused.
    """

    async def measured() -> ApiReport:
        async with client_of(url, key, 1) as client:
            with measuring_bar(asks, Console(stderr=True)) as advance:
                options = {"max_tokens": 4, "collection": collection}
                row = await measure_asks(client, questions or (_QUESTION,), asks, options, lambda: advance("measuring"))
        return ApiReport(url=url, machine=machine(), ask=row)

    report = asyncio.run(measured())
    Console().print_json(msgspec.json.encode(report).decode())
    write_report(report, json_file)


async def _measure(parts: Parts, sizes: tuple[int, ...], runs: int, collection: str = DEFAULT_COLLECTION) -> TtftReport:
    console, chunks = Console(stderr=True), chunks_to_measure(parts, collection)
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
        with measuring_bar(num_requests(sizes, runs), console) as advance:
            rows = [row async for row in measuring.measure(chunks, sizes, runs, advance)]
    return TtftReport(Path(parts.model_folder).name, machine(), rows)
