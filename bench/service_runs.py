"""`ragkv eval run` and `ragkv eval runs`: evaluations of a running service on its own questions, over HTTP."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import httpx
import msgspec
from rich.console import Console
from rich.table import Table

from bench.api import NO_SERVICE
from bench.measuring import json_option, read_lines, write_report
from ragkv.cli.progress import shown
from ragkv.errors import Rejected, Unavailable
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.evaluations.outcome import EvaluationReport, EvaluationRun, EvaluationRunPage, GivenQuestion, Kind
from ragkv.settings import CLIENT_KEY

PATH = "/v1/evaluations"
LOOK_S = 1.0
TIMEOUT_S = 60.0
_CAPTION = (
    "gain: share of full prefill's gain over no passages that stitching keeps. KL: to full prefill, nats a token. F1: percent, stitched "
    "and in full. x: times faster to the first token. R@5: percent of needed passages among the first 5."
)

T = TypeVar("T")


def of_service(command: Any) -> Any:
    """The options that name a service and a key for it."""
    key = click.option("--key", envvar=CLIENT_KEY, help=f"An API key with the scope admin.  [env: {CLIENT_KEY}]")
    url = click.option("--url", default="http://127.0.0.1:8000", help="URL of the service.")
    return url(key(command))


@click.command("run")
@of_service
@click.option("--collection", default=DEFAULT_COLLECTION, help="Id or name of the collection.")
@click.option("--kind", type=click.Choice(get_args(Kind)), default="fidelity")
@click.option("--logged", is_flag=True, help="Ask all logged questions, not only those that were rated.")
@click.option(
    "--data",
    "data_file",
    type=click.Path(path_type=Path),
    help="Ask these: JSON lines of question, answers; for retrieval also passages or gold.",
)
@click.option("--since", help="Only questions asked at this time or later, ISO 8601.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    help="Maximum number of questions; the newest are asked, of --data the first.",
)
@click.option(
    "--fail-under",
    type=float,
    help="Exit with code 1 if less is kept of full prefill's gain; for retrieval, if recall at 5 is less. Between 0 and 1.",
)
@json_option("Write the run with its questions as JSON.")
def run_evaluation(
    url: str, key: str | None, data_file: Path | None, fail_under: float | None, json_file: Path | None, **options: Any
) -> None:
    """Evaluate a running service on questions of its own, and wait for the figures.

    The service measures alongside its users' questions, which come first. If this command is interrupted, the run
    continues without it; `ragkv eval runs` lists it.
    """
    if data_file is not None and options["logged"]:
        raise Rejected("give --data or --logged, not both")
    with client_of(url, key) as client:
        run = ended(client, started(client, data_file, **options))
        report = read(client.get(f"{PATH}/{run.id}"), EvaluationReport)
    Console().print(table_of([report.run]), markup=False)
    write_report(report, json_file)
    run = report.run
    if run.state != "done":  # what was not measured to its end opens no gate
        raise Rejected(f"the evaluation was not finished: {run.error or run.state}")
    if fail_under is None:
        return
    figure, name = run.fidelity.gain_kept if run.fidelity else None, "gain kept"
    if run.retrieval is not None:
        figure, name = run.retrieval.recall_at_5 / 100, "recall at 5"
    if figure is None:
        raise Rejected(f"--fail-under {fail_under:g}: no question could be measured, or there is no gain to keep")
    if figure < fail_under:
        raise Rejected(f"{name} {figure:.3f} is under {fail_under:g}")


@click.command("runs")
@of_service
@click.option("--collection", help="Id or name of the collection.  [default: all]")
@click.option("--limit", type=click.IntRange(1, 200), default=20)
def list_evaluations(url: str, key: str | None, collection: str | None, limit: int) -> None:
    """List the evaluations of a running service, newest first."""
    params: dict[str, Any] = {"limit": limit} | ({"collection": collection} if collection else {})
    with client_of(url, key) as client:
        page = read(client.get(PATH, params=params), EvaluationRunPage)
    Console().print(table_of(page.items), markup=False)


@contextmanager
def client_of(url: str, key: str | None) -> Iterator[httpx.Client]:
    """A client of a service. Requests raise Unavailable without one, and Rejected with what it says against them."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    hooks = {"response": [_refused]}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, event_hooks=hooks) as client:
            yield client
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(f"no service answers at {url}: {error}; {NO_SERVICE}") from error


def started(
    client: httpx.Client, data_file: Path | None, *, logged: bool, limit: int, since: str | None, **options: Any
) -> EvaluationRun:
    body: dict[str, Any] = options | {"limit": limit, "since": since, "source": "logged" if logged else "rated"}
    if data_file is not None:
        questions = [question for _, question in read_lines(data_file, GivenQuestion)][:limit]
        body |= {"source": "given", "questions": msgspec.to_builtins(questions)}
    return read(client.post(PATH, json=body), EvaluationRun)


def ended(client: httpx.Client, run: EvaluationRun) -> EvaluationRun:
    """The run once it has ended, with a bar meanwhile."""

    def looks() -> Iterator[EvaluationRun]:
        current = run
        yield current
        while current.is_open:
            time.sleep(LOOK_S)
            current = read(client.get(f"{PATH}/{run.id}"), EvaluationReport).run
            yield current

    return shown(looks(), "measuring", lambda current: (current.done, current.total))


def read(response: httpx.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"{response.url}: is the service the same version as this command? {error}") from None


def table_of(runs: list[EvaluationRun]) -> Table:
    """A line a run; it fits 80 columns."""
    table = Table(caption=_CAPTION, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("kind", "started, UTC", "collection", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("n", "gain", "KL", "F1, full", "x", "R@5"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        fidelity, searched = run.fidelity, run.retrieval
        table.add_row(
            run.kind,
            run.created_at.strftime("%m-%d %H:%M"),
            run.collection,
            run.state,
            f"{run.done}/{run.total}",
            f"{fidelity.gain_kept:.2f}" if fidelity and fidelity.gain_kept is not None else "-",
            f"{fidelity.kl:.3f}" if fidelity else "-",
            f"{fidelity.f1:.0f}, {fidelity.f1_full:.0f}" if fidelity and fidelity.f1 is not None else "-",
            f"{fidelity.speedup:.1f}" if fidelity else "-",
            f"{searched.recall_at_5:.0f}" if searched else "-",
        )
    return table


def _refused(response: httpx.Response) -> None:
    """Check the status of a response. Raises Rejected with what the service says."""
    if response.is_success:
        return
    response.read()
    try:
        said = msgspec.json.decode(response.content).get("detail")
    except (msgspec.DecodeError, AttributeError):
        said = None
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        raise Unavailable(said or "the service is unavailable")
    raise Rejected(
        f"{response.url} answered {response.status_code}: {said or f'it is no service of ragkv; {NO_SERVICE}'}"
    )
