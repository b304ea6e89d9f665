"""The pages of questions: the playground, the log with the feedback on answers, and evaluations made of both."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, get_args

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from api.admin.charts import Chart, Measurement, history_chart
from api.admin.collections import chosen_collection, collections_of
from api.admin.format import duration
from api.admin.shell import AdminRequest, page
from api.v1.questions import PART_CHARACTERS
from ragkv.answer.recompute import Recomputing
from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.tenants import collection_ref
from ragkv.service.evaluations.outcome import EvaluationRun
from ragkv.service.evaluations.runs import MAX_QUESTIONS, list_runs, report_of_run
from ragkv.service.questions.questions import list_questions, question_log
from ragkv.service.questions.statements import QuestionFilter, Rated
from ragkv.settings import Settings
from ragkv.stitch.policies import POLICIES

QUESTIONS_A_PAGE = 25
CHOICES = (7, 30, 90, 365)
"""Days for which the texts of questions may be kept, beside those of the service and none."""
PERIODS = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}
RUNS_A_PAGE = 25
DRAWN = 50
"""Runs of a chart, the newest that have its figures."""
QUESTIONS_SHOWN = 100


@get("/playground", sync_to_thread=True)
def playground_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    recomputing: NamedDependency[Recomputing],
    collection: FromQuery[str] = "",
    question: FromQuery[str] = "",
) -> Response[str]:
    """Render the form, filled with `collection` (id or name; else one that has documents) and `question`."""
    collections = collections_of(request.user.tenant_id, database, collection)
    with_documents = next((item for item in collections if item.documents), None)
    selected = chosen_collection(collections, collection) if collection else with_documents
    return page(
        request,
        "playground.html",
        collections=collections,
        chosen=selected.id if selected else None,
        question=question,
        policies=POLICIES,
        recompute=recomputing.default(written=True),
        named_ratio=recomputing.default(written=False).ratio,  # a policy that is named is to be seen
        settings=settings,
    )


@get("/questions", sync_to_thread=True)
def questions_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    text: Annotated[str, QueryParameter(max_length=PART_CHARACTERS)] = "",
    collection: FromQuery[str] = "",
    rating: FromQuery[str] = "",
    period: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the questions that match, newest first."""
    tenant_id = request.user.tenant_id
    collection_id = collection_ref(tenant_id, collection, database).collection_id if collection else None
    rated: Rated | None = next((value for value in get_args(Rated) if value == rating), None)
    since = utc_now() - PERIODS[period] if period in PERIODS else None
    criteria = QuestionFilter(tenant_id, collection_id, rated, since, text=text or None)
    shown = {"text": text, "collection": collection_id or "", "rating": rated or "", "period": period if since else ""}
    query = {
        "text": text,
        "collection": collection_id,
        "rating": rated,
        "since": since and since.isoformat(timespec="seconds"),
    }
    return page(
        request,
        "questions.html",
        questions=list_questions(criteria, QUESTIONS_A_PAGE, cursor, database),
        collections=collections_of(tenant_id, database, collection),
        shown=shown,
        longest_text=PART_CHARACTERS,
        kept=question_log(tenant_id, settings.question_retention_days, database),
        choices=CHOICES,
        export={name: value for name, value in query.items() if value},
        cursor=cursor,
    )


@get("/evaluations", sync_to_thread=True)
def evaluations_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    collection: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the runs of one collection, or of all: the newest figures, how they changed, and a list."""
    tenant_id = request.user.tenant_id
    collection_id = collection_ref(tenant_id, collection, database).collection_id if collection else None
    collections = collections_of(tenant_id, database, collection)
    latest = list_runs(tenant_id, collection_id, MAX_PAGE, None, database).items
    return page(
        request,
        "evaluations.html",
        runs=list_runs(tenant_id, collection_id, RUNS_A_PAGE, cursor, database),
        collections=collections,
        chosen=chosen_collection(collections, collection),
        fidelity=next((run for run in latest if run.fidelity), None),
        retrieval=next((run for run in latest if run.retrieval), None),
        fidelity_chart=fidelity_chart(latest),
        retrieval_chart=retrieval_chart(latest),
        periods=PERIODS,
        max_questions=MAX_QUESTIONS,
        cursor=cursor,
        polled=any(run.is_open for run in latest),
    )


@get("/evaluations/{run_id:str}", sync_to_thread=True)
def evaluation_page(request: AdminRequest, run_id: FromPath[str], database: NamedDependency[Database]) -> Response[str]:
    """Render one run with its worst questions."""
    report = report_of_run(request.user.tenant_id, run_id, database)
    return page(
        request,
        "evaluation.html",
        run=report.run,
        questions=report.questions[:QUESTIONS_SHOWN],
        hidden=max(0, len(report.questions) - QUESTIONS_SHOWN),
    )


def fidelity_chart(newest_first: Sequence[EvaluationRun]) -> Chart | None:
    """The share of full prefill's gain that was kept, run by run; None for fewer than two."""
    history = [
        Measurement(
            run.ended_at or run.created_at,
            (1.0, figures.gain_kept),
            (
                str(figures.questions),
                "–" if figures.gain_kept is None else f"{figures.gain_kept:.2f}",
                f"{figures.kl:.3f}",
                duration(figures.ttft_ms),
                duration(figures.ttft_full_ms),
            ),
        )
        for run in newest_first
        if (figures := run.fidelity) is not None
    ][:DRAWN][::-1]
    heads = ("Questions", "Gain kept", "KL", "First token, stitched", "First token, full")
    return (
        history_chart(history, ("in-full", "stitched"), heads, lambda value: f"{value:g}", 1.0) if history[1:] else None
    )


def retrieval_chart(newest_first: Sequence[EvaluationRun]) -> Chart | None:
    """Recall among the first 5 passages, run by run; None for fewer than two."""
    history = [
        Measurement(
            run.ended_at or run.created_at,
            (figures.recall_at_5,),
            (
                str(figures.questions),
                *(
                    f"{value:.0f}%"
                    for value in (figures.recall_at_2, figures.recall_at_5, figures.recall_at_10, figures.mrr)
                ),
            ),
        )
        for run in newest_first
        if (figures := run.retrieval) is not None
    ][:DRAWN][::-1]
    heads = ("Questions", "Recall at 2", "at 5", "at 10", "MRR")
    return history_chart(history, ("stitched",), heads, lambda value: f"{value:g}%", 100.0) if history[1:] else None
