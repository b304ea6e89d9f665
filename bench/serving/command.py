"""`ragkv bench serve`: many questions at once, to a separate engine or to a running service."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import httpx
import msgspec
from rich.console import Console
from rich.table import Table

from bench.api import client_of, streamed
from bench.command import chunks_to_measure, measuring_bar
from bench.measuring import json_option, write_report
from bench.serving.engine import Serving, check_cache, contexts_of
from bench.serving.load import MODES, Ask, Mode, Plan, ServeReport, ServeRow, measure, row_of
from bench.ttft import machine
from ragkv.cli.opened import COLLECTION, opened_parts, running_engine
from ragkv.engine.launch import CPU_CACHE_GIB, cache_gib_of
from ragkv.errors import Rejected
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.parts import Parts


@click.command()
@click.option(
    "--clients", type=click.IntRange(1), default=16, help="Number of clients; each asks one question after another."
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Questions per second, arriving at random, instead of --clients.",
)
@click.option("--context", type=click.IntRange(64), default=4096, help="Tokens of an engine's context.")
@click.option("--answer", type=click.IntRange(2), default=32, help="Tokens of an answer.")
@click.option("--questions", type=click.IntRange(1), default=32, help="Questions of each mode in each round.")
@click.option("--rounds", type=click.IntRange(1), default=3)
@click.option(
    "--mode", "modes", type=click.Choice(MODES), multiple=True, help="Mode to measure; may be repeated.  [default: all]"
)
@click.option("--url", help="URL of a running service, instead of an engine of its own.")
@click.option("--key", help="An API key of the service with the scope read, if it requires one.")
@click.option("--question", "texts", multiple=True, help="Question to the service; may be repeated.")
@COLLECTION
@json_option("Write the rows as JSON.")
def serve(
    modes: tuple[Mode, ...],
    url: str | None,
    key: str | None,
    texts: tuple[str, ...],
    collection: str,
    json_file: Path | None,
    **figures: Any,
) -> None:
    """Measure many questions at once: stitched according to the settings, in full, and from the engine's prefix cache.

    Modes take turns. An engine of its own answers about contexts drawn from the collection; a running service
    is asked your questions, stitched and in full, and uses what its own caches hold.
    """
    plan = Plan(modes=modes or (MODES if url is None else MODES[:2]), **figures)
    if url is None:
        with opened_parts(Parts.prepare) as parts:
            rows = asyncio.run(_ask_engine(parts, plan, collection))
            report = ServeReport(Path(parts.model_folder).name, machine(), rows)
    elif not texts:
        raise Rejected("--url needs questions to ask: give --question, several times for several")
    elif "cached" in plan.modes:
        raise Rejected("--mode cached needs an engine of its own: omit --url")
    else:
        report = ServeReport(url, machine(), asyncio.run(_ask_service(url, key, texts, plan, collection)))
    row = report.rows[0]
    load = f"{row.clients} clients" if row.rate is None else f"{row.rate:g} questions a second"
    title = f"{report.model} on {report.machine}: {load}, {row.context_tokens:,} tokens of context"
    table = Table(
        "mode", "questions/s", "first token s: p50, p95, p99", "between tokens ms: p50, p99", "errors", title=title
    )
    for row in report.rows:
        table.add_row(
            row.mode,
            f"{row.qps:.2f}",
            _figures((row.ttft_p50_s, row.ttft_p95_s, row.ttft_p99_s), 1, 2),
            _figures((row.itl_p50_s, row.itl_p99_s), 1e3, 0),
            str(row.errors),
        )
    Console().print(table)
    write_report(report, json_file)


async def _ask_engine(parts: Parts, plan: Plan, collection: str) -> list[ServeRow]:
    console, chunks = Console(stderr=True), chunks_to_measure(parts, collection)
    recompute = parts.recomputing.default(written=True)
    contexts = contexts_of(chunks, plan.clients, plan.context, plan.answer, parts.prompts)
    if "cached" in plan.modes:
        cache_gib = cache_gib_of(parts.settings) or CPU_CACHE_GIB  # a GPU's may be larger
        check_cache(contexts, int(cache_gib * 2**30) // parts.layout.bytes_per_token)
    serving = Serving(
        parts.engine, parts.planner, parts.keys_of(parts.default_collection.tenant_id), recompute, contexts
    )
    async with running_engine(parts, console):
        with measuring_bar(plan.total, console) as advance:
            return await serving.measure(plan, advance)


async def _ask_service(
    url: str, key: str | None, questions: tuple[str, ...], plan: Plan, collection: str
) -> list[ServeRow]:
    connections = plan.clients if plan.rate is None else plan.questions
    async with client_of(url, key, connections) as client:
        with measuring_bar(plan.total, Console(stderr=True)) as advance:
            return await Asking(client, questions, collection).measure(plan, advance)


def _figures(seconds: Iterable[float | None], times: float, decimals: int) -> str:
    return ", ".join("-" if value is None else f"{value * times:.{decimals}f}" for value in seconds)


class Asking:
    """A running service, asked the questions in turn. Each is asked as if it were new: no earlier answer serves."""

    def __init__(
        self, client: httpx.AsyncClient, questions: Sequence[str], collection: str = DEFAULT_COLLECTION
    ) -> None:
        self._client = client
        self._questions = questions
        self._collection = collection
        self._prompt_tokens: list[int] = []

    async def measure(self, plan: Plan, progress: Callable[[Mode], None]) -> list[ServeRow]:
        """A row a mode. The warm-up asks each question once: the passages of each are then known to the engine in
        either mode, as far as its own cache holds them."""
        asks = {mode: self.ask(mode, plan.answer) for mode in plan.modes}
        seen = await measure(asks, plan, len(self._questions), progress)
        tokens = sum(self._prompt_tokens) // max(len(self._prompt_tokens), 1)
        return [row_of(mode, outcomes, plan, tokens) for mode, outcomes in seen.items()]

    def ask(self, mode: Mode, answer_tokens: int) -> Ask:
        async def asked(number: int) -> AsyncGenerator[object, None]:
            question = self._questions[number % len(self._questions)]
            body: dict[str, Any] = {"question": question, "mode": mode, "max_tokens": answer_tokens}
            body |= {"collection": self._collection, "stream": True, "answer_cache": False}
            is_empty = True  # an answer without text is one, too: its end is the first that is heard of it
            async for name, data in streamed(self._client, body):
                if name == "done":
                    self._prompt_tokens.append(msgspec.json.decode(data)["usage"]["prompt"])
                if name != "done" or is_empty:
                    yield data
                is_empty = False

        return asked
