"""`ragkv demo`: ingest documents, ask questions stitched and in full, and compare the two."""

import asyncio
import statistics
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.measuring import read_lines
from ingest.local import find_files, read_all
from ingest.parts import IngestParts
from ragkv.answer.question import Answer, Question
from ragkv.answer.recompute import DEFAULT_RATIO
from ragkv.cli.ask import place
from ragkv.cli.opened import opened_parts, running_engine
from ragkv.engine.loop import run_on
from ragkv.errors import RagKVError, Rejected
from ragkv.models import EMBEDDED
from ragkv.prefill.writer import EMBEDDED_WRITER, install
from ragkv.service.parts import Parts
from ragkv.settings import Mode


class DemoQuestion(msgspec.Struct, frozen=True):
    """A line of questions.jsonl. The answers are the data set's, shown beside the model's."""

    question: str
    answers: list[str] = []


@dataclass(frozen=True, slots=True)
class Compared:
    """One question's answers from the same passages: in full, as the service does, and recomputing another share."""

    question: DemoQuestion
    full: Answer
    stitched: Answer
    other: Answer

    def speedup(self, answer: Answer) -> float:
        """The ratio of full prefill's time to first token to this one's."""
        return self.full.timings.engine_ttft_ms / answer.timings.engine_ttft_ms

    def check(self) -> None:
        """Check both answers. Raises Rejected if an answer did not come back or its figures cannot be."""
        for answer in (self.full, self.stitched):
            usage = answer.usage
            counted = usage.cached + usage.stitched + usage.recomputed + usage.computed
            if not answer.text or counted != usage.prompt or answer.timings.engine_ttft_ms <= 0:
                raise Rejected(f"no real answer to {self.question.question!r}: {answer}")
        if not self.stitched.usage.stitched + self.stitched.usage.cached:
            raise Rejected(f"nothing was stitched for {self.question.question!r}")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def demo(folder: Path) -> None:
    """Ingest FOLDER, ask its questions, and compare stitched with full prefill.

    With the embedded model it uses the writer that comes with ragkv, unless you chose another or none.
    """
    questions = [question for _, question in read_lines(folder / "questions.jsonl", DemoQuestion)]
    with opened_parts() as parts:
        settings = parts.settings
        if settings.model == EMBEDDED and not settings.writer_dir.exists():
            try:
                install(EMBEDDED_WRITER, settings.writer_dir, parts.model_fingerprint)
            except RagKVError as error:
                click.echo(f"without a writer: {error}", err=True)
    with opened_parts() as parts:
        # Beside the service's own share: nothing, or what it would recompute without a writer.
        other = 0.0 if parts.recomputing.default(written=True).ratio else DEFAULT_RATIO
        compared = asyncio.run(_compare(parts, folder / "documents", questions, other))
    # TTFT in milliseconds as the service answers, with the other share recomputed, and of full prefill.
    table = Table(title=f"Time to first token (ms), {len(compared)} questions", expand=True)
    table.add_column("question", no_wrap=True, ratio=1)
    for name in ("stitched", "recomputed", "TTFT", f"{other:.0%}", "full", "ratio", f"{other:.0%}"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = []
    for answers in compared:
        usage = answers.stitched.usage
        times = [answer.timings.engine_ttft_ms for answer in (answers.stitched, answers.other, answers.full)]
        speedups = [answers.speedup(answer) for answer in (answers.stitched, answers.other)]
        rows.append([usage.stitched + usage.cached, usage.recomputed, *times, *speedups])
        table.add_row(answers.question.question, *_cells(rows[-1]))
    table.add_section()
    table.add_row("median", *_cells([statistics.median(column) for column in zip(*rows, strict=True)]))
    Console().print(table)


async def _compare(parts: Parts, documents: Path, questions: list[DemoQuestion], other: float) -> list[Compared]:
    console = Console()
    async with running_engine(parts, Console(stderr=True)):
        ingest = IngestParts(parts, run=run_on(asyncio.get_running_loop()))
        tally = await asyncio.to_thread(read_all, list(find_files([documents])), ingest, console)
        if tally.failures:
            raise Rejected("; ".join(f"{path}: {reason}" for path, reason in tally.failures))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("asking", total=len(questions))
            compared = []
            for question in questions:
                full = await _answer(parts, question.question, "full")
                stitched = await _answer(parts, question.question, "stitched")
                shared = await _answer(parts, question.question, "stitched", recompute_ratio=other, max_tokens=2)
                compared.append(Compared(question, full, stitched, shared))
                compared[-1].check()
                _show(compared[-1], progress.console)
                progress.advance(task)
    return compared


async def _answer(
    parts: Parts, question: str, mode: Mode, recompute_ratio: float | None = None, max_tokens: int | None = None
) -> Answer:
    ref = parts.default_collection
    query = Question(
        ref.tenant_id, ref.collection_id, question, mode, recompute_ratio=recompute_ratio, max_tokens=max_tokens
    )
    return [event async for event in parts.answerer.uncached.stream(query) if isinstance(event, Answer)][-1]


def _show(compared: Compared, console: Console) -> None:
    usage, timings = compared.stitched.usage, compared.stitched.timings

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, markup=False)

    line(f"\n{compared.question.question}", "bold")
    line(f"  stitched : {_line(compared.stitched.text)}")
    line(f"  full     : {_line(compared.full.text)}")
    line(f"  expected : {' / '.join(compared.question.answers)}", "dim")
    for cited in dict.fromkeys(map(place, compared.stitched.citations)):
        line(f"  cites {cited}", "dim")
    line(
        f"  {usage.stitched + usage.cached} tokens stitched, {usage.recomputed} recomputed, {usage.computed} computed; "
        f"first token after {timings.engine_ttft_ms:.0f} ms, "
        f"full prefill {compared.full.timings.engine_ttft_ms:.0f} ms: {compared.speedup(compared.stitched):.1f}x"
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _cells(figures: list[float]) -> list[str]:
    return [f"{figure:,.0f}" for figure in figures[:-2]] + [f"{figure:.1f}x" for figure in figures[-2:]]
