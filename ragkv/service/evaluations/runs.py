"""Evaluation runs as their owners see them: start, list, show, cancel, delete."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import msgspec

from ragkv.errors import Conflict, Rejected
from ragkv.ids import new_id, utc_now
from ragkv.service.base.database import Database, Session, advisory_lock
from ragkv.service.base.page import newest_first, row_by_id, view_from
from ragkv.service.base.tables import EvaluationQuestionRow, EvaluationRow, FeedbackRow
from ragkv.service.base.tenants import collection_ref, hold_collection
from ragkv.service.evaluations.figures import fidelity_figures, retrieval_figures
from ragkv.service.evaluations.known import known_answer, text_of
from ragkv.service.evaluations.outcome import (
    ComparedAnswers,
    EvaluationReport,
    EvaluationRun,
    EvaluationRunPage,
    FidelityFigures,
    FidelityOutcome,
    GivenQuestion,
    Kind,
    MeasuredQuestion,
    RetrievalFigures,
    RetrievalOutcome,
    RunSettings,
    Source,
)
from ragkv.service.evaluations.statements import (
    CANCELLED,
    DONE,
    FAILED,
    OPEN,
    QUEUED,
    RUN_KEYS,
    forget_older_given,
    num_runs,
    outcomes_of,
    questions_of,
    runs_of,
)
from ragkv.service.questions.questions import LoggedQuestion, all_questions
from ragkv.service.questions.statements import QuestionFilter, known_answers

MAX_QUESTIONS = 500
"""Questions of a run, at most."""
MOST_LOGGED = 100_000
"""Questions of the log that are looked at, at most, for some with different texts."""
MAX_OPEN = 4
"""Runs of a tenant that have not ended."""
MAX_RUNS = 1000
"""Runs of a tenant, whether ended or not."""
GIVEN_SETS = 8
"""Ended runs of a tenant whose given questions are kept: a set may have megabytes, which count in no quota."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A requested run: `kind`, over the newest `limit` questions of a `source`, asked in [since, until); or over
    `questions`, if the source is "given"."""

    kind: Kind
    source: Source
    limit: int = MAX_QUESTIONS
    since: datetime | None = None
    until: datetime | None = None
    questions: Sequence[GivenQuestion] = ()


def start_run(tenant_id: str, collection: str, request: RunRequest, database: Database) -> EvaluationRun:
    """A new run, queued. Raises NotFound for the collection, Rejected if there is no question to measure, or are given
    ones that the source does not measure, Conflict if the tenant has too many runs. Of its ended runs with given
    questions, only the newest keep them."""
    if request.questions and request.source != "given":
        raise Rejected(
            f"`questions` cannot be given with the source {request.source!r}: set `source` to `given`, or omit them"
        )
    ref = collection_ref(tenant_id, collection, database)
    run_id = new_id()
    questions = _questions(run_id, tenant_id, ref.collection_id, request, database)
    with database.writing() as session:
        advisory_lock(session, f"evaluations {tenant_id}")
        hold_collection(session, ref.collection_id)
        if (session.scalar(num_runs(tenant_id).where(EvaluationRow.state.in_(OPEN))) or 0) >= MAX_OPEN:
            raise Conflict(f"{MAX_OPEN} evaluations are still queued or running: wait for one to end, or cancel one")
        if (session.scalar(num_runs(tenant_id)) or 0) >= MAX_RUNS:
            raise Conflict(f"{MAX_RUNS:,} evaluations are kept: delete some")
        if request.questions:
            session.execute(forget_older_given(tenant_id, GIVEN_SETS - 1))
        if not questions:
            raise Rejected(_NOTHING[request.source])
        session.add(
            EvaluationRow(
                id=run_id,
                tenant_id=tenant_id,
                collection_id=ref.collection_id,
                kind=request.kind,
                source=request.source,
                state=QUEUED,
                total=len(questions),
            )
        )
        session.flush()
        session.add_all(questions)
    return find_run(tenant_id, run_id, database)


def list_runs(
    tenant_id: str, collection: str | None, limit: int, cursor: str | None, database: Database
) -> EvaluationRunPage:
    """Newest first. Raises NotFound for the collection, Rejected for an invalid cursor."""
    collection_id = None if collection is None else collection_ref(tenant_id, collection, database).collection_id
    rows, following = newest_first(database, runs_of(tenant_id, collection_id), RUN_KEYS, limit, cursor)
    return EvaluationRunPage([_view(row, name) for row, name in rows], following)


def find_run(tenant_id: str, run_id: str, database: Database) -> EvaluationRun:
    """One run, with its figures. Raises NotFound."""
    with database.reading() as session:
        return _view(*_find(session, tenant_id, run_id))


def report_of_run(tenant_id: str, run_id: str, database: Database) -> EvaluationReport:
    """A run with its questions, the worst first. Raises NotFound."""
    with database.reading() as session:
        run = _view(*_find(session, tenant_id, run_id))
        of_fidelity, of_retrieval = run.kind == "fidelity", run.kind == "retrieval"
        questions = []
        for row, feedback, logged in session.execute(questions_of(run_id)):
            text = text_of(row, feedback, logged)
            answers = row.answers if text is not None else None
            question = view_from(
                MeasuredQuestion,
                row,
                question=text,
                known_answer=None if text is None else known_answer(row, feedback),
                answers=None if answers is None else msgspec.convert(answers, ComparedAnswers),
                fidelity=msgspec.convert(row.outcome, FidelityOutcome) if row.outcome and of_fidelity else None,
                retrieval=msgspec.convert(row.outcome, RetrievalOutcome) if row.outcome and of_retrieval else None,
            )
            questions.append(question)
    return EvaluationReport(run, sorted(questions, key=_badness, reverse=True))


def cancel_run(tenant_id: str, run_id: str, database: Database) -> EvaluationRun:
    """End a run, with the figures of what it has measured; one that has ended stays as it is. Raises NotFound."""
    with database.writing() as session:
        row, _ = _find(session, tenant_id, run_id, lock=True)
        if row.state in OPEN:
            end_run(row, CANCELLED, session)
    return find_run(tenant_id, run_id, database)


def delete_run(tenant_id: str, run_id: str, database: Database) -> None:
    """Remove a run with its figures, also one that has not ended. Raises NotFound."""
    with database.writing() as session:
        row, _ = _find(session, tenant_id, run_id)
        session.delete(row)


def end_run(row: EvaluationRow, state: str, session: Session, error: str | None = None) -> None:
    """End a run with the figures of what was measured."""
    assert state in (DONE, CANCELLED, FAILED), "a state that a run ends in"
    outcomes = [outcome for outcome in session.scalars(outcomes_of(row.id)) if outcome is not None]
    skipped = row.done - len(outcomes)
    figures: FidelityFigures | RetrievalFigures | None
    if row.kind == "fidelity":
        figures = fidelity_figures([msgspec.convert(builtins, FidelityOutcome) for builtins in outcomes], skipped)
    else:
        figures = retrieval_figures([msgspec.convert(builtins, RetrievalOutcome) for builtins in outcomes], skipped)
    row.figures = None if figures is None else msgspec.to_builtins(figures)
    row.state, row.error, row.ended_at, row.holder, row.leased_until = state, error, utc_now(), None, None


_NOTHING: dict[Source, str] = {
    "rated": "none of the collection's questions from this period has an answer that was corrected or rated up: rate some first",
    "logged": "no question to the collection was logged in this period: ask some, or choose another period",
    "given": "there are no questions: give them in `questions`",
}


def _questions(
    run_id: str, tenant_id: str, collection_id: str, request: RunRequest, database: Database
) -> list[EvaluationQuestionRow]:
    if request.source == "given":
        questions: Sequence[GivenQuestion] = request.questions
        if request.kind != "retrieval":  # the others use neither
            questions = [msgspec.structs.replace(question, passages=(), gold=()) for question in questions]
        return [
            EvaluationQuestionRow(evaluation_id=run_id, ordinal=number, given=msgspec.to_builtins(question))
            for number, question in enumerate(questions)
        ]
    find = _rated if request.source == "rated" else _logged
    ids = find(tenant_id, collection_id, request, database)
    return [
        EvaluationQuestionRow(evaluation_id=run_id, ordinal=number, question_id=item) for number, item in enumerate(ids)
    ]


def _rated(tenant_id: str, collection_id: str, request: RunRequest, database: Database) -> list[str]:
    """Ids of questions with known answers, the newest of the period."""
    statement = known_answers(tenant_id, collection_id)
    if request.since is not None:
        statement = statement.where(FeedbackRow.asked_at >= request.since)
    if request.until is not None:
        statement = statement.where(FeedbackRow.asked_at < request.until)
    newest = statement.order_by(FeedbackRow.asked_at.desc(), FeedbackRow.answer_id).limit(request.limit)
    return [row.answer_id for row in database.scalars(newest)]


def _logged(tenant_id: str, collection_id: str, request: RunRequest, database: Database) -> list[str]:
    """Ids of all questions of the period, the newest; of those with the same text one, if possible one that was
    rated."""
    wish = QuestionFilter(tenant_id, collection_id, since=request.since, until=request.until)
    by_text: dict[str, LoggedQuestion] = {}
    for question in islice(all_questions(wish, database), MOST_LOGGED):
        earlier = by_text.get(question.question)
        if earlier is None and len(by_text) == request.limit:
            break
        if earlier is None or (earlier.feedback is None and question.feedback is not None):
            by_text[question.question] = question
    return [question.id for question in sorted(by_text.values(), key=lambda one: one.asked_at, reverse=True)]


def _find(session: Session, tenant_id: str, run_id: str, *, lock: bool = False) -> tuple[EvaluationRow, str]:
    """(run, its collection's name), the run for the transaction to change alone with `lock`. Raises NotFound."""
    statement = runs_of(tenant_id).where(EvaluationRow.id == run_id)
    statement = statement.with_for_update(of=EvaluationRow) if lock else statement
    row, name = row_by_id(session, statement, run_id, "there is no evaluation")
    return row, name


def _view(row: EvaluationRow, collection: str) -> EvaluationRun:
    of_fidelity = row.figures is not None and row.kind == "fidelity"
    of_retrieval = row.figures is not None and row.kind == "retrieval"
    return view_from(
        EvaluationRun,
        row,
        collection=collection,
        settings=None if row.settings is None else msgspec.convert(row.settings, RunSettings),
        fidelity=msgspec.convert(row.figures, FidelityFigures) if of_fidelity else None,
        retrieval=msgspec.convert(row.figures, RetrievalFigures) if of_retrieval else None,
    )


def _badness(one: MeasuredQuestion) -> tuple[float, float]:
    """Higher is worse; questions that were skipped or not reached come last."""
    if one.fidelity is not None:
        return 1.0, one.fidelity.kl
    if one.retrieval is not None:
        return 1.0, sum(float(rank or 100) for rank in one.retrieval.ranks) / len(one.retrieval.ranks)
    return 0.0, float(one.error is not None)
