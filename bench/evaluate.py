"""`ragkv eval`: measure quality on data with known answers."""

import os
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import TaskID
from rich.table import Table

from bench.fidelity.command import draw, fidelity
from bench.measuring import OUTPUT, json_option, write_report
from bench.retrieval import CUTOFFS, DENSE, HYBRID_HOPS, Corpus, RetrievalReport, read_questions
from bench.retrieval import evaluate as evaluate_retrieval
from bench.service_runs import list_evaluations, run_evaluation
from ragkv.cli import Group
from ragkv.cli.opened import COLLECTION, opened_parts, tenant_id_of
from ragkv.cli.progress import progress_bars
from ragkv.errors import Rejected
from ragkv.models import encoder_folder, reranker_folder
from ragkv.retrieve.encoder import Encoder
from ragkv.retrieve.rerank import Reranker
from ragkv.service.base.tenants import DEFAULT_TENANT, collection_ref
from ragkv.service.parts import Parts
from ragkv.service.questions.questions import evaluation_set
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
    settings = Settings.from_env(os.environ)
    corpus = Corpus.read(corpus_file)
    questions = read_questions(data_file, corpus, limit)
    folder = reranker_folder(settings)
    encoder, reranker = Encoder.load(encoder_folder(settings)), None if folder is None else Reranker.load(folder)
    tasks: dict[str, TaskID] = {}  # a bar for each thing that is done, from when it is first heard of
    with progress_bars(Console(stderr=True)) as progress:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage)
            progress.update(tasks[stage], completed=done, total=total)

        rows, differences = evaluate_retrieval(corpus, questions, encoder, show, reranker)
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
    _show(report, Console())
    write_report(report, json_file)


def _show(report: RetrievalReport, console: Console) -> None:
    """A table, what the re-ranker changes, and one line: the gain of two hops over one dense search, and their cost."""
    title = f"{report.data}: percent, median ms (questions: {report.n:,}, passages: {report.passages:,})"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    for column in (*(f"R@{k}" for k in CUTOFFS), *(f"all@{k}" for k in CUTOFFS), f"MRR@{CUTOFFS[-1]}", "ms"):
        table.add_column(column, justify="right")
    for row in report.rows:
        method, *figures = msgspec.structs.astuple(row)
        table.add_row(method, *(f"{figure:.1f}" for figure in figures))
    console.print(table)
    for difference in report.differences:
        console.print(
            f"{difference.method} against {difference.against}: R@{difference.cutoff} {difference.mean:+.1f} points [{difference.low:+.1f}, {difference.high:+.1f}]",
            highlight=False,
        )
    by_method = {row.method: row for row in report.rows}
    single, two = by_method[DENSE], by_method[HYBRID_HOPS]
    gain = two.all_gold_at_5 - single.all_gold_at_5
    console.print(
        f"{two.method} against {single.method}: all@5 {gain:+.1f} points at {two.ms_per_query / single.ms_per_query:.1f}x the time."
    )
    if report.reranker is None:
        console.print(NO_RERANKER)


@evaluate.command()
@click.option("--tenant", default=DEFAULT_TENANT, help="Tenant whose collection it is.")
@COLLECTION
@click.option("--output", type=OUTPUT, help="Write to this file.  [default: standard output]")
def export(tenant: str, collection: str, output: Path | None) -> None:
    """Write the rated questions of a collection as JSON lines, for `ragkv eval fidelity --data`.

    The known answer is the corrected one, or the one that was rated up. Questions that do not have all the passages of
    their prompt any more are left out.
    """
    with opened_parts(Parts.prepare_database) as parts:
        tenant_id = tenant_id_of(tenant, parts.database)
        rows = list(evaluation_set(collection_ref(tenant_id, collection, parts.database), parts.database))
    questions = [question for question in rows if question is not None]
    if not questions:
        raise Rejected(
            f"{collection}: no question has an answer that was corrected or rated up and all of its passages"
        )
    lines = b"".join(msgspec.json.encode(question) + b"\n" for question in questions)
    if output is None:
        click.echo(lines, nl=False)
    else:
        output.write_bytes(lines)
    click.echo(f"{len(questions):,} questions written, {rows.count(None):,} left out", err=True)
