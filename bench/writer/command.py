"""`ragkv writer`: train, evaluate and use the writer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from bench.measuring import INPUT
from ragkv.cli import Group
from ragkv.cli.opened import opened_parts
from ragkv.cli.progress import progress_bars
from ragkv.prefill.writer import EMBEDDED_WRITER, SUFFICIENT_KL, Card, Gate, install, read_card, remove
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.parts import Parts
from ragkv.settings import Settings

if TYPE_CHECKING:
    from bench.writer.run import Plan, Run

FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
DOCUMENTS = click.option(
    "--documents",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="File or folder whose text to use; it need not be ingested. May be given several times.",
)
COLLECTION = click.option(
    "--collection", default=DEFAULT_COLLECTION, help="Collection whose chunks to use, if no --documents are given."
)
FLOAT32 = click.option(
    "--float32", is_flag=True, help="Compute in float32. Faster on processors without AMX, in twice the memory."
)


@click.group(cls=Group)
def writer() -> None:
    """Train a writer: an adapter that makes the KV of chunks fit for stitching.

    It is active only while chunks are prefilled. The model that answers is unchanged.
    """


@writer.command()
@FOLDER
@DOCUMENTS
@COLLECTION
@click.option("--samples", type=click.IntRange(0), default=600, help="Maximum number of contexts to train on.")
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=60, help="Maximum duration of the training."
)
@click.option(
    "--learning-rate",
    "rate",
    type=click.FloatRange(0, min_open=True),
    default=1e-3,
    help="Peak learning rate; use a lower one for a larger model.",
)
@click.option(
    "--questions",
    type=INPUT,
    help="Known questions to train on as well, in every second context: a file as for `ragkv eval fidelity --data`.",
)
@click.option(
    "--model-answered",
    "unanswered",
    type=click.FloatRange(0, 1),
    default=0,
    help="Share of the training questions made from documents for which the model writes the answer.",
)
@click.option("--held-out", type=click.IntRange(8), default=32, help="Contexts for the evaluation.")
@click.option("--seed", type=int, default=0)
@FLOAT32
def train(folder: Path, documents: tuple[Path, ...], collection: str, questions: Path | None, **options: Any) -> None:
    """Train a writer on documents or on a collection's chunks, and write it to FOLDER.

    No questions or labels are needed. An interrupted run resumes where it stopped.
    """
    from bench.writer.run import Plan  # noqa: PLC0415 - seconds to import, needed here alone
    from bench.writer.train import Course  # noqa: PLC0415 - see above

    console = Console(stderr=True)
    course = Course(options.pop("samples"), options.pop("minutes") * 60, options.pop("rate"))
    data = [file.name for file in documents] or [f"collection {collection}"]
    if questions:
        data.append(questions.name)
    plan = Plan(folder, course, **options, data=", ".join(data))
    with _run(plan, documents, collection, console, questions) as run:
        card = _trained(run, console)
        _show(card, console)
        _say(card.gate, console)


@writer.command("eval")
@FOLDER
@DOCUMENTS
@COLLECTION
@click.option("--held-out", type=click.IntRange(8), default=32, help="Number of contexts.")
@click.option(
    "--data",
    type=INPUT,
    help="Known questions to compare with full prefill on instead, the first --held-out of a file as for `ragkv eval fidelity --data`; the writer's evaluation is unchanged.",
)
@FLOAT32
def evaluate(
    folder: Path, documents: tuple[Path, ...], collection: str, held_out: int, data: Path | None, *, float32: bool
) -> None:
    """Evaluate the writer in FOLDER on contexts that it was not trained on."""
    from bench.writer.evaluate import evaluate_known  # noqa: PLC0415 - see train
    from bench.writer.run import Plan  # noqa: PLC0415 - see train
    from bench.writer.train import Course  # noqa: PLC0415 - see train

    console = Console(stderr=True)
    if data is not None:
        with opened_parts(Parts.prepare) as parts, progress_bars(console) as bar:
            task = bar.add_task("questions", total=held_out)
            gate = evaluate_known(
                folder, data, held_out, parts, lambda done: bar.update(task, completed=done), float32=float32
            )
        _print(_figures(gate), console)
        return
    card = read_card(folder)
    plan = Plan(folder, Course(card.samples, card.seconds), held_out, card.seed, float32=float32)
    with _run(plan, documents, collection, console) as run:
        with progress_bars(console) as bar:
            task = bar.add_task("held-out contexts", total=held_out)
            card = run.evaluated(card, lambda done: bar.update(task, completed=done))
        _show(card, console)
        _say(card.gate, console)


@writer.command()
def show() -> None:
    """Show the writer in use."""
    _show(read_card(Settings.from_env(os.environ).writer_dir), Console())


@writer.command()
@click.argument("folder", type=click.Path(path_type=Path), default=EMBEDDED_WRITER)
def use(folder: Path) -> None:
    """Use the writer in FOLDER from the next start of the service.

    Without FOLDER, use the one for the embedded model that comes with ragkv. A writer must have passed its evaluation.
    The KV of all documents is then computed again, and the old KV is used until then.
    """
    with opened_parts(lambda parts: parts.prepare(partial(click.echo, err=True))) as parts:
        card = install(folder, parts.settings.writer_dir, parts.model_fingerprint)
    _show(card, Console(stderr=True))
    click.echo("in use after the next start of the service; its workers then compute the KV of all documents again")


@writer.command("remove")
def take_out() -> None:
    """Stop using the writer, from the next start of the service."""
    there_was = remove(Settings.from_env(os.environ).writer_dir)
    click.echo("no longer in use after the next start of the service" if there_was else "no writer is in use")


@contextmanager
def _run(
    plan: "Plan", documents: tuple[Path, ...], collection: str, console: Console, questions: Path | None = None
) -> Iterator["Run"]:
    from bench.writer.corpus import (  # noqa: PLC0415 - see train
        chunks_of_collection,
        chunks_of_files,
        known_of_file,
    )
    from bench.writer.run import Run  # noqa: PLC0415 - see train

    with opened_parts(Parts.prepare) as parts:
        samples = known_of_file(questions, parts.tokenizer) if questions else ()
        if documents:
            with console.status("reading the documents") as status:
                report = lambda done, total: status.update(f"reading the documents: {done} of {total}")  # noqa: E731
                chunks = chunks_of_files(documents, parts, report)
        else:
            chunks = chunks_of_collection(collection, parts.database, parts.source, parts.default_collection)
        with console.status("preparing the model"):
            run = Run(parts, chunks, plan, samples)
        yield run


def _trained(run: "Run", console: Console) -> Card:
    with progress_bars(console) as bar:
        trained = bar.add_task("contexts", total=run.plan.course.samples, completed=run.samples)

        def progress(samples: int, kl: float) -> None:
            bar.update(trained, completed=samples, description=f"contexts (KL {kl:.3f})")

        def validated(samples: int, kl: float) -> None:
            bar.console.print(f"after {samples} contexts: KL {kl:.4f} on validation contexts", highlight=False)

        def settling(strength: float) -> None:
            bar.update(trained, description=f"choosing the strength: {strength:g}")

        card = run.train(progress, validated, settling)
        bar.update(trained, total=card.samples, completed=card.samples)
        task = bar.add_task("held-out contexts", total=run.plan.held_out)
        return run.evaluated(card, lambda done: bar.update(task, completed=done))


def _show(card: Card, console: Console) -> None:
    rows = {
        "model": card.model,
        "made": f"{card.made_at:%Y-%m-%d %H:%M}",
        "trained": f"{card.samples} contexts in {card.seconds / 60:.0f} minutes, rank {card.rank}, seed {card.seed}",
        "data": card.data or "-",
        "strength": f"{card.strength:g} of what was trained",
        "validation KL": " -> ".join(f"{kl:.3f}" for _, kl in card.curve) or "-",
    }
    if card.gate is not None:
        rows |= _figures(card.gate) | {
            "by default": "nothing is recomputed"
            if card.suffices
            else f"a tenth is recomputed: the KL is not below {SUFFICIENT_KL}"
        }
    _print(rows, console)


def _figures(gate: Gate) -> dict[str, str]:
    return {
        "held out": f"{gate.contexts} contexts, nothing recomputed",
        "KL": f"{gate.kl:.3f}, plain {gate.plain_kl:.3f} (at most {gate.kl_ratio_upper:.2f} of it, 95%)",
        "NLL": f"{gate.nll:.3f}, plain {gate.plain_nll:.3f}",
        "one chunk KL": f"{gate.one_chunk_kl:.3f}",
    }


def _print(rows: dict[str, str], console: Console) -> None:
    table = Table(box=None, show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table, highlight=False)


def _say(gate: Gate | None, console: Console) -> None:
    if gate is None:
        return
    if objections := gate.objections():
        console.print("it does not pass: " + "; ".join(objections), style="yellow", highlight=False)
    else:
        console.print("it passes: `ragkv writer use FOLDER` puts it into use", style="green", highlight=False)
