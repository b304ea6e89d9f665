"""`ragkv eval`: measure quality on data with known answers."""

import os
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from bench.export import export
from bench.fidelity.command import draw, fidelity
from bench.measuring import check_folder, json_option, write_report
from bench.retrieval import CUTOFFS, DENSE, HYBRID_HOPS, Corpus, RetrievalReport, RetrievalRow, read_questions
from bench.retrieval import evaluate as evaluate_retrieval
from bench.service_runs import list_evaluations, run_evaluation
from ragkv.cli import Group
from ragkv.cli.progress import progress_bars
from ragkv.models import encoder_folder, reranker_folder
from ragkv.retrieve.encoder import Encoder
from ragkv.retrieve.rerank import Reranker
from ragkv.settings import Settings

_FILE = click.Path(path_type=Path)
NO_RERANKER = (
    "No re-ranker is set. For rows with one, set RAGKV_RERANKER to a sentence-transformers CrossEncoder: a folder, or a "
    "hub name such as cross-encoder/ms-marco-MiniLM-L6-v2."
)


@click.group("eval", cls=Group)
def evaluate() -> None:
    """Measure quality on data with known answers."""


evaluate.add_command(fidelity)
evaluate.add_command(draw)
evaluate.add_command(export)
evaluate.add_command(run_evaluation)
evaluate.add_command(list_evaluations)


@evaluate.command()
@click.option("--corpus", "corpus_file", type=_FILE, required=True, help="Passages: JSON lines of id, title, text.")
@click.option("--data", "data_file", type=_FILE, required=True, help="Questions: JSON lines of question, gold_ids.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of questions; the first are asked.")
@json_option("Write the report as JSON.")
def retrieval(corpus_file: Path, data_file: Path, limit: int | None, json_file: Path | None) -> None:
    """Measure recall of dense, BM25, hybrid and two-hop search, and milliseconds for each question.

    With RAGKV_RERANKER, also measure hybrid and two-hop search with that re-ranker. Needs no engine and no database.
    Passages are encoded first, which takes about a minute for a thousand of them on two cores.

    \b
    R@k    share of a question's gold passages among the first k, mean
    all@k  questions with every gold passage among the first k
    MRR    1 / rank of the first gold passage, mean
    ms     median, the question's own encoding included
    """  # noqa: D301 - click's marker is the character itself
    check_folder("--json", json_file)
    settings = Settings.from_env(os.environ)
    corpus = Corpus.read(corpus_file)
    questions = read_questions(data_file, corpus, limit)
    encoder, reranker = _models(settings)
    with progress_bars(Console(stderr=True)) as progress:
        rows, differences = evaluate_retrieval(corpus, questions, encoder, Stages(progress).show, reranker)
    report = RetrievalReport(
        corpus=corpus_file.name,
        data=data_file.name,
        encoder=settings.encoder,
        reranker=settings.reranker,
        n=len(questions),
        passages=len(corpus),
        rows=rows,
        differences=differences,
    )
    console = Console()
    console.print(_table(report))
    for difference in differences:
        console.print(
            f"{difference.method} against {difference.against}: R@{difference.cutoff} {difference.mean:+.1f} points [{difference.low:+.1f}, {difference.high:+.1f}]",
            highlight=False,
        )
    console.print(_in_short(rows))
    if reranker is None:
        console.print(NO_RERANKER)
    if json_file is not None:
        write_report(report, json_file)


def _models(settings: Settings) -> tuple[Encoder, Reranker | None]:
    folder = reranker_folder(settings)
    return Encoder.load(encoder_folder(settings)), None if folder is None else Reranker.load(folder)


class Stages:
    """A bar for each thing that is done, from when it is first heard of."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage)
        self._progress.update(self._tasks[stage], completed=done, total=total)


def _table(report: RetrievalReport) -> Table:
    table = Table(title=f"{report.data}: percent, median ms (questions: {report.n:,}, passages: {report.passages:,})")
    table.add_column("method", no_wrap=True)
    for column in (*(f"R@{k}" for k in CUTOFFS), *(f"all@{k}" for k in CUTOFFS), f"MRR@{CUTOFFS[-1]}", "ms"):
        table.add_column(column, justify="right")
    for row in report.rows:
        method, *figures = msgspec.structs.astuple(row)
        table.add_row(method, *(f"{figure:.1f}" for figure in figures))
    return table


def _in_short(rows: list[RetrievalRow]) -> str:
    """One line: the gain of two hops over one dense search, and their cost."""
    by_method = {row.method: row for row in rows}
    single, two = by_method[DENSE], by_method[HYBRID_HOPS]
    gain = two.all_gold_at_5 - single.all_gold_at_5
    return f"{two.method} against {single.method}: all@5 {gain:+.1f} points at {two.ms_per_query / single.ms_per_query:.1f}x the time."
