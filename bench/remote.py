"""`ragkv bench remote`: time to first token with KV only in the object store, compared with KV on disk and full
prefill."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bench.command import chunks_to_measure, measuring_bar
from bench.measuring import json_option, write_report
from bench.serving.engine import Context, contexts_of
from bench.serving.load import percentile
from bench.ttft import machine, timed
from ragkv.answer.promote import Promoter
from ragkv.answer.recompute import Recompute
from ragkv.cli.opened import COLLECTION, opened_parts, running_engine
from ragkv.engine.protocol import Generate
from ragkv.errors import RagKVError, Rejected, Unavailable
from ragkv.kv.key import KeyMaker
from ragkv.kv.remote import ObjectStore
from ragkv.observe.metrics import OURS
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.kv_admin.upload import Uploader
from ragkv.service.parts import Parts
from ragkv.stitch.located import LocatedKV

Mode = Literal["full", "disk", "remote"]
MODES: tuple[Mode, ...] = get_args(Mode)

ATTEMPTS, PAUSE_S = 40, 0.25
"""At having KV in the object store, or on disk: the store may be one that fails now and then."""


class RemoteRow(msgspec.Struct, frozen=True, kw_only=True):
    """One mode. late: chunks whose KV was not there in time, each recomputed. loads: files that came from the object
    store. same: answers equal to those over KV on disk, if they should be."""

    mode: str
    questions: int
    failed: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    chunks: int
    late: int
    loads: int
    same: int | None


class RemoteReport(msgspec.Struct, frozen=True):
    """The report of `ragkv bench remote --json`. latency_ms, errors: injected into each request to the object store."""

    model: str
    machine: str
    context_tokens: int
    latency_ms: float
    errors: float
    rows: list[RemoteRow]


@dataclass(slots=True)
class _Seen:
    """Measurements of one mode. answers: by number of the question."""

    firsts: list[float] = field(default_factory=list)
    answers: dict[int, list[int]] = field(default_factory=dict)
    failed: int = 0
    chunks: int = 0
    late: int = 0
    loads: int = 0

    def row(self, mode: str, expected: dict[int, list[int]] | None) -> RemoteRow:
        p50, p95 = (percentile(self.firsts, percent) if self.firsts else None for percent in (50, 95))
        return RemoteRow(
            mode=mode,
            questions=len(self.firsts) + self.failed,
            failed=self.failed,
            ttft_p50_s=p50,
            ttft_p95_s=p95,
            chunks=self.chunks,
            late=self.late,
            loads=self.loads,
            same=None
            if expected is None
            else sum(self.answers[number] == expected.get(number) for number in self.answers),
        )


@dataclass(frozen=True, slots=True)
class RemoteBench:
    """A started engine, and contexts whose KV is on disk and in the object store."""

    parts: Parts
    promoter: Promoter
    recompute: Recompute
    contexts: Sequence[Context]
    answer_tokens: int

    async def measure(self, at_once: int, progress: Callable[[str], None]) -> AsyncIterator[RemoteRow]:
        """A row a mode, whose questions take turns, and one for `at_once` questions about one context whose KV is only
        in the object store. The first context is asked about once more before, and not counted."""
        seen = {mode: _Seen() for mode in MODES}
        await self._fill_disk(0)
        for mode in MODES:
            await self._ask(0, 0, mode, _Seen())
        for number in range(len(self.contexts)):
            for mode in MODES:
                if mode == "disk":
                    await self._fill_disk(number)
                elif mode == "remote":
                    self._empty_disk(number)
                loads = _loads()
                await self._ask(number, 0, mode, seen[mode])
                seen[mode].loads += _loads() - loads
                progress(mode)
        expected = seen["disk"].answers
        for mode in MODES:
            yield seen[mode].row(mode, None if mode == "full" else expected)
        together, loads = _Seen(), _loads()
        self._empty_disk(0)
        await asyncio.gather(*(self._ask(0, number, "remote", together) for number in range(at_once)))
        together.loads = _loads() - loads
        yield together.row(f"remote, {at_once} at once", None)

    async def _ask(self, number: int, variant: int, mode: Mode, seen: _Seen) -> None:
        """A question about a context, which finds nothing of an earlier one in the engine's cache."""
        context = self.contexts[number]
        prompt = context.prompts[variant % len(context.prompts)]
        began = time.perf_counter()
        try:
            plan = None
            if mode != "full":
                located = await self._locate(context)
                if mode == "remote":
                    promoted = await self.promoter.bring(located)
                    located = await asyncio.to_thread(located.with_arrived, promoted, frozenset(), self.parts.kv_store)
                plan = await asyncio.to_thread(self.parts.planner.plan, prompt, located, self.recompute, None)
            planned_s = time.perf_counter() - began
            request = Generate(prompt.token_ids, uuid.uuid4().hex, plan, max_tokens=self.answer_tokens, ignore_eos=True)
            answer = await timed(self.parts.engine, request)
        except RagKVError:
            seen.failed += 1
            return
        self.promoter.cost.answered(answer.report, answer.first_s)
        seen.firsts.append(planned_s + answer.first_s)
        seen.answers[number] = answer.token_ids
        seen.chunks += len(context.passages)
        seen.late += plan.num_missing if plan else 0

    async def _locate(self, context: Context) -> LocatedKV:
        return await asyncio.to_thread(self.parts.planner.locate, context.passages, self._keys)

    async def _fill_disk(self, number: int) -> None:
        """Have all of the context's KV on disk. Raises Unavailable if it does not come."""
        for _ in range(ATTEMPTS):
            located = await self._locate(self.contexts[number])
            if not located.missing:
                return
            await self.promoter.bring(located)
            await asyncio.sleep(PAUSE_S)
        raise Unavailable("KV does not come from the object store: see the log")

    def _empty_disk(self, number: int) -> None:
        """Leave the context's KV in the object store alone, as for a host that never saw it."""
        located = self.parts.planner.locate(self.contexts[number].passages, self._keys)
        self.parts.kv_store.drop([located.prefix, *(passage.key for passage in located.passages)])

    @property
    def _keys(self) -> KeyMaker:
        return self.parts.keys_of(self.parts.default_collection.tenant_id)


@click.command()
@click.option("--context", type=click.IntRange(64), default=2048, help="Tokens of a context.")
@click.option("--questions", type=click.IntRange(1), default=40, help="Contexts, asked about once in each mode.")
@click.option("--at-once", type=click.IntRange(1), default=32, help="Questions about one context at the end.")
@click.option("--answer", type=click.IntRange(2), default=16, help="Tokens of an answer.")
@click.option("--latency-ms", type=click.FloatRange(0), default=0.0, help="Delay of each request to the object store.")
@click.option("--errors", type=click.FloatRange(0, 1), default=0.0, help="Share of these requests that fail.")
@COLLECTION
@json_option("Write the rows as JSON.")
def remote(
    context: int,
    questions: int,
    at_once: int,
    answer: int,
    latency_ms: float,
    errors: float,
    collection: str,
    json_file: Path | None,
) -> None:
    """Measure KV that is only in the object store (RAGKV_KV_REMOTE), beside KV on disk and full prefill.

    Contexts are drawn from the collection, whose KV is uploaded first. KV files on this disk are removed and
    loaded again.
    """
    with opened_parts(Parts.prepare) as parts:
        if parts.kv_remote is None:
            raise Rejected("RAGKV_KV_REMOTE names no object store: set it, for a first try to file:///tmp/kv")
        parts.kv_remote = cast("ObjectStore", _SlowStore(parts.kv_remote, latency_ms / 1e3, errors))
        tokens, rows = asyncio.run(_measured(parts, context, questions, at_once, answer, collection))
    report = RemoteReport(Path(parts.model_folder).name, machine(), tokens, latency_ms, errors, rows)
    store = f"object store with {latency_ms:g} ms, {errors:.0%} errors"
    title = f"{report.model} on {report.machine}: {tokens:,} tokens of context, {store}"
    table = Table("mode", "first token s: p50, p95", "loads", "chunks late", "same answer", "failed", title=title)
    for row in rows:
        seconds = (row.ttft_p50_s, row.ttft_p95_s)
        table.add_row(
            row.mode,
            ", ".join("-" if value is None else f"{value:.2f}" for value in seconds),
            str(row.loads),
            f"{row.late} of {row.chunks}",
            "-" if row.same is None else f"{row.same} of {row.questions}",
            str(row.failed),
        )
    Console().print(table)
    write_report(report, json_file)


class _SlowStore:
    """An object store whose answers take longer, and a share of which are errors."""

    def __init__(self, remote: ObjectStore, latency_s: float, errors: float) -> None:
        self._remote = remote
        self._latency_s = latency_s
        self._errors = errors

    def __getattr__(self, name: str) -> Callable[..., Any]:
        request = getattr(self._remote, name)

        def delayed(*args: object) -> Any:
            time.sleep(self._latency_s)
            if random.random() < self._errors:  # noqa: S311 - no secret
                raise Unavailable("injected fault: the object store answered with an error")
            return request(*args)

        return delayed


async def _measured(
    parts: Parts, context: int, questions: int, at_once: int, answer: int, collection: str = DEFAULT_COLLECTION
) -> tuple[int, list[RemoteRow]]:
    """The mean tokens of a context, and a row for each mode."""
    console, chunks = Console(stderr=True), chunks_to_measure(parts, collection)
    promoter = parts.promoter
    assert promoter is not None, "there is an object store"
    contexts = contexts_of(chunks, questions, context, answer, parts.prompts)
    with console.status("uploading KV"):
        uploader = Uploader(parts)
        if all(uploader.upload().failed for _ in range(ATTEMPTS)):
            raise Unavailable(f"not all KV could be uploaded to {parts.settings.kv_remote}: see the log")
    recompute = parts.recomputing.default(written=True)
    bench = RemoteBench(parts, promoter, recompute, contexts, answer)
    async with running_engine(parts, console):
        with measuring_bar(questions * len(MODES), console) as advance:
            rows = [row async for row in bench.measure(at_once, advance)]
    tokens = sum(context.prompts[0].question.start for context in contexts) // len(contexts)
    return tokens, rows


def _loads() -> int:
    """Files that came from the object store in this process."""
    return int(OURS.get_sample_value("ragkv_kv_remote_load_seconds_count") or 0)
