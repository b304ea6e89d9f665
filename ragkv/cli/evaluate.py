"""`ragkv eval`: how good the parts are, on data with known answers."""

import os
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from ragkv.bench.retrieval import CUTOFFS, Corpus, RetrievalReport, Row, read_questions
from ragkv.bench.retrieval import evaluate as evaluate_retrieval
from ragkv.errors import Rejected
from ragkv.models import encoder_folder
from ragkv.retrieve.encoder import Encoder
from ragkv.settings import Settings

_FILE = click.Path(path_type=Path)


@click.group("eval")
def evaluate() -> None:
    """Measure quality on data with known answers."""


@evaluate.command()
@click.option("--corpus", "corpus_file", type=_FILE, required=True, help="Passages: JSON lines of id, title, text.")
@click.option("--data", "data_file", type=_FILE, required=True, help="Questions: JSON lines of question, gold_ids.")
@click.option("--limit", type=click.IntRange(min=1), help="Ask only the first of the questions.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write rows.")
def retrieval(corpus_file: Path, data_file: Path, limit: int | None, json_file: Path | None) -> None:
    """Recall of dense, BM25, hybrid and multi-hop search. Needs no engine and no database."""
    _check_folder(json_file)
    corpus = Corpus.read(corpus_file)
    questions = read_questions(data_file, corpus, limit)
    encoder = Encoder.load(encoder_folder(Settings.from_env(os.environ)))
    with _progress(Console(stderr=True)) as progress:
        rows = evaluate_retrieval(corpus, questions, encoder, Stages(progress).show)
    report = RetrievalReport(str(corpus_file), str(data_file), len(questions), len(corpus), rows)
    Console().print(_table(report))
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


class Stages:
    """A bar for each thing that is done, from when it is first heard of."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage)
        self._progress.update(self._tasks[stage], completed=done, total=total)


def _check_folder(file: Path | None) -> None:
    """Measuring takes minutes: a report that cannot be written is better known before."""
    if file is not None and not file.parent.is_dir():
        raise Rejected(f"--json {file}: there is no folder {file.parent}")


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def _table(report: RetrievalReport) -> Table:
    name = Path(report.data).name
    table = Table(title=f"{name}: percent, median ms (questions: {report.n:,}, passages: {report.passages:,})")
    table.add_column("method", no_wrap=True)
    for column in (*(f"R@{k}" for k in CUTOFFS), *(f"all@{k}" for k in CUTOFFS), f"MRR@{CUTOFFS[-1]}", "ms"):
        table.add_column(column, justify="right")
    for row in report.rows:
        table.add_row(row.method, *(f"{value:.1f}" for value in _figures(row)))
    return table


def _figures(row: Row) -> list[float]:
    return [value for value in msgspec.structs.astuple(row) if not isinstance(value, str)]
