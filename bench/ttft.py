"""Time to first token: full prefill, vLLM's prefix cache (the floor), and stitching at several recompute ratios.

Runs are interleaved (one of each method, then again), so that a machine that slows down slows all of them; medians are
compared, and ratios between methods of one measurement are what the figures are for.
"""

import platform
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ragkv.answer.planner import Planner
from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Engine, Generate, Report
from ragkv.errors import Rejected
from ragkv.kv.key import KeyMaker
from ragkv.stitch.policies import PolicyName

SIZES = (1024, 2048, 4096, 6144)
RATIOS = (0.0, 0.05, 0.10, 0.15)
QUESTION = "Which two of the people named in these passages worked together, and on what?"
_ANSWER_TOKENS = 2  # the first is timed, the report comes with the second


class TtftRow(msgspec.Struct, frozen=True):
    """One method at one size. `ttft_s` is the median of `runs` runs, as are the engine's own times of stitching;
    `ratio` is null but for stitched rows, and so are those times."""

    context_tokens: int
    question_tokens: int
    method: str
    ratio: float | None
    policy: str | None
    ttft_s: float
    runs: int
    kv_load_ms: float | None = None
    recompute_ms: float | None = None


class TtftReport(msgspec.Struct, frozen=True):
    """The report of `ragkv bench ttft --json`."""

    model: str
    machine: str
    rows: list[TtftRow]

    def ttft(self, context_tokens: int, method: str, ratio: float | None = None) -> float:
        """The median of one row, in seconds."""
        return next(
            row.ttft_s
            for row in self.rows
            if (row.context_tokens, row.method, row.ratio) == (context_tokens, method, ratio)
        )

    @property
    def sizes(self) -> list[int]:
        return sorted({row.context_tokens for row in self.rows})

    @property
    def ratios(self) -> list[float]:
        return sorted({row.ratio for row in self.rows if row.ratio is not None})


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer: seconds to its first token, its tokens, and the engine's report."""

    first_s: float
    token_ids: list[int]
    report: Report


async def timed(engine: Engine, request: Generate) -> Timed:
    """Have a request answered."""
    began, first_s, report, token_ids = time.perf_counter(), None, None, list[int]()
    async for output in engine.generate(request):
        first_s = first_s or time.perf_counter() - began
        token_ids += output.token_ids
        report = output.report
    assert first_s is not None and report is not None, "an engine always gives an output, and a report with the last"
    return Timed(first_s, token_ids, report)


@dataclass(frozen=True, slots=True)
class Bench:
    """A started engine, and chunks whose KV is in the store."""

    engine: Engine
    prompts: PromptBuilder
    planner: Planner
    keys: KeyMaker
    policy: PolicyName
    block_size: int
    ratios: Sequence[float] = RATIOS

    def check(self, chunks: Sequence[Chunk], sizes: Sequence[int]) -> None:
        """Check the sizes. Raises Rejected for one that the chunks hold too little text for, and for one that has no
        room for the first of them. Needs no engine."""
        for size in sizes:
            _passages(chunks, size)

    async def measure(
        self, chunks: Sequence[Chunk], sizes: Sequence[int], runs: int, progress: Callable[[str], None]
    ) -> AsyncIterator[TtftRow]:
        """Rows size by size. `progress` is told after every request what it was. Raises like `check`."""
        for size in sizes:
            passages = _passages(chunks, size)
            prompt = self.prompts.build([p.chunk for p in passages], QUESTION, _ANSWER_TOKENS)
            times = await self._interleaved(prompt, passages, runs, progress)
            for (method, ratio), answers in times.items():
                reports = [answer.report for answer in answers] if method == "stitched" else []
                yield TtftRow(
                    context_tokens=prompt.question.start,
                    question_tokens=prompt.question.num_tokens,
                    method=method,
                    ratio=ratio,
                    policy=self.policy if reports else None,
                    ttft_s=statistics.median(answer.first_s for answer in answers),
                    runs=len(answers),
                    kv_load_ms=statistics.median(report.kv_load_ms for report in reports) if reports else None,
                    recompute_ms=statistics.median(report.recompute_ms for report in reports) if reports else None,
                )

    async def _interleaved(
        self, prompt: Prompt, passages: Sequence[Passage], runs: int, progress: Callable[[str], None]
    ) -> dict[tuple[str, float | None], list[Timed]]:
        """One warm-up round that is not counted, then `runs` rounds of every method. A separate salt keeps a run from
        hitting an earlier one's prefix cache; the floor is meant to hit it, and is asked for just before: the other
        methods' prompts may have taken its place."""
        floor_salt = uuid.uuid4().hex
        methods = [("full", None), ("floor", None), *(("stitched", ratio) for ratio in self.ratios)]
        times: dict[tuple[str, float | None], list[Timed]] = {method: [] for method in methods}
        for run in range(runs + 1):
            for method, ratio in methods:
                salt = floor_salt if method == "floor" else uuid.uuid4().hex
                if method == "floor":
                    await self._timed(prompt, passages, ratio, salt)
                answer = await self._timed(prompt, passages, ratio, salt)
                progress(f"{prompt.question.start} tokens, {method}{'' if ratio is None else f' {ratio:.2f}'}")
                if run:
                    times[method, ratio].append(answer)
        return times

    async def _timed(self, prompt: Prompt, passages: Sequence[Passage], ratio: float | None, salt: str) -> Timed:
        """One request, stitched if there is a ratio. The time is without planning."""
        plan = None
        if ratio is not None:
            recompute = Recompute(self.policy, ratio, self.block_size)
            plan = self.planner.plan(prompt, self.planner.locate(passages, self.keys), recompute, None)
            if plan is not None and plan.num_missing:
                raise Rejected(f"{plan.num_missing} of the chunks have no KV: run `ragkv ingest` again, then measure")
        request = Generate(prompt.token_ids, salt, plan, max_tokens=_ANSWER_TOKENS, ignore_eos=True)
        return await timed(self.engine, request)


def num_requests(sizes: Sequence[int], runs: int) -> int:
    """The number of progress calls that `measure` makes."""
    return len(sizes) * (runs + 1) * (2 + len(RATIOS))


def machine() -> str:
    """One line that describes the machine."""
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - not a file of ours
            cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or "unknown processor"
    return f"{platform.machine()}, {cpu}, Python {platform.python_version()}"


def _passages(chunks: Sequence[Chunk], size: int) -> list[Passage]:
    """The first chunks that make about `size` tokens together, one at least. Later ones score higher: best last."""
    passages: list[Passage] = []
    tokens = 0
    for chunk in chunks:
        if tokens + chunk.num_tokens > size:
            break
        passages.append(Passage(chunk, score=float(len(passages)), hop=1))
        tokens += chunk.num_tokens
    else:
        raise Rejected(f"the collection has only {tokens} tokens, but {size} are needed: ingest more there first")
    if not passages:
        raise Rejected(f"--size {size} has no room for a passage: the first one has {chunks[0].num_tokens} tokens")
    return passages


def describe(report: TtftReport) -> list[dict[str, Any]]:
    """A table of seconds and of ratios between them, one row a size. Percents: stitched, with so much recomputed."""
    table = []
    for size in report.sizes:
        full, floor = report.ttft(size, "full"), report.ttft(size, "floor")
        row: dict[str, Any] = {"context": size, "full s": full, "floor s": floor}
        for ratio in report.ratios:
            row[f"{ratio:.0%} s"] = report.ttft(size, "stitched", ratio)
        stitched = report.ttft(size, "stitched", 0.0)
        row |= {"full / 0%": full / stitched, "0% / floor": stitched / floor}
        row["full / 10%"] = full / report.ttft(size, "stitched", 0.10)
        table.append(row)
    return table
