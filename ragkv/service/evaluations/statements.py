"""Statements about evaluations: runs, their questions, and the lease on a run while one of its questions is
measured."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Delete, Select, Update, delete, exists, func, null, select, tuple_, update
from sqlalchemy.orm import Session

from ragkv.service.base.database import has_come
from ragkv.service.base.page import Keys
from ragkv.service.base.tables import CollectionRow, EvaluationQuestionRow, EvaluationRow, FeedbackRow, QuestionRow

QUEUED, RUNNING, DONE, CANCELLED, FAILED = "queued", "running", "done", "cancelled", "failed"
OPEN = (QUEUED, RUNNING)
RUN_KEYS: Keys = (EvaluationRow.created_at.expression, EvaluationRow.id.expression)


def runs_of(tenant_id: str, collection_id: str | None = None) -> Select[EvaluationRow, str]:
    """(run, its collection's name) of a tenant, or of one of its collections."""
    statement = select(EvaluationRow, CollectionRow.name).join(
        CollectionRow, CollectionRow.id == EvaluationRow.collection_id
    )
    statement = statement.where(EvaluationRow.tenant_id == tenant_id)
    return statement if collection_id is None else statement.where(EvaluationRow.collection_id == collection_id)


def any_open() -> Select[str]:
    """The id of a run of any tenant that has not ended."""
    return select(EvaluationRow.id).where(EvaluationRow.state.in_(OPEN)).limit(1)


def next_run(moment: datetime, longest_hold: timedelta) -> Select[EvaluationRow]:
    """The open run that no process holds and whose last question is longest ago: runs take turns. It is locked."""
    is_waiting = (EvaluationRow.state.in_(OPEN), has_come(EvaluationRow.leased_until, moment, longest_hold))
    waiting = select(EvaluationRow).where(*is_waiting)
    ordered = waiting.order_by(EvaluationRow.stepped_at, EvaluationRow.id).limit(1)
    return ordered.with_for_update(skip_locked=True)


def change_held(run_id: str, holder: str, /, **changes: Any) -> Update:
    """Change a run that is held. Changes no row if it is held no more, was cancelled or deleted."""
    held = (EvaluationRow.holder == holder, EvaluationRow.state.in_(OPEN))
    return update(EvaluationRow).where(EvaluationRow.id == run_id, *held).values(**changes)


def next_question(run_id: str) -> Select[EvaluationQuestionRow]:
    """The first question of a run without an outcome."""
    left = (EvaluationQuestionRow.outcome.is_(None), EvaluationQuestionRow.error.is_(None))
    statement = select(EvaluationQuestionRow).where(EvaluationQuestionRow.evaluation_id == run_id, *left)
    return statement.order_by(EvaluationQuestionRow.ordinal).limit(1)


def questions_of(run_id: str) -> Select[EvaluationQuestionRow, FeedbackRow | None, str | None]:
    """(question of a run, its feedback, its text in the log), in order; None for what is gone."""
    return (
        select(EvaluationQuestionRow, FeedbackRow, QuestionRow.text)
        .outerjoin(FeedbackRow, FeedbackRow.answer_id == EvaluationQuestionRow.question_id)
        .outerjoin(QuestionRow, QuestionRow.id == EvaluationQuestionRow.question_id)
        .where(EvaluationQuestionRow.evaluation_id == run_id)
        .order_by(EvaluationQuestionRow.ordinal)
    )


def outcomes_of(run_id: str) -> Select[dict[str, Any]]:
    """The outcomes of a run so far, in the order of its questions."""
    measured = (EvaluationQuestionRow.evaluation_id == run_id, EvaluationQuestionRow.outcome.is_not(None))
    return select(EvaluationQuestionRow.outcome).where(*measured).order_by(EvaluationQuestionRow.ordinal)


def record_outcome(session: Session, run_id: str, ordinal: int, **values: Any) -> None:
    mine = (EvaluationQuestionRow.evaluation_id == run_id, EvaluationQuestionRow.ordinal == ordinal)
    session.execute(update(EvaluationQuestionRow).where(*mine).values(**values))


def forget_runs_about(collection_id: str, limit: int) -> Delete:
    ids = select(EvaluationRow.id).where(EvaluationRow.collection_id == collection_id).limit(limit)
    return delete(EvaluationRow).where(EvaluationRow.id.in_(ids))


def forget_answers_compared(limit: int) -> Update:
    """Answers of runs to questions of which neither the record nor feedback is kept any more."""
    mine = EvaluationQuestionRow.question_id
    forgotten = (
        ~exists().where(QuestionRow.id == mine, QuestionRow.text != ""),
        ~exists().where(FeedbackRow.answer_id == mine),
    )
    keys = _keys().where(mine.is_not(None), EvaluationQuestionRow.answers.is_not(None), *forgotten).limit(limit)
    return update(EvaluationQuestionRow).where(_is_one_of(keys)).values(answers=null())


def forget_given(cutoff: datetime, limit: int) -> Update:
    """Questions that were given with runs that ended before the cutoff, and the answers to them."""
    old = select(EvaluationRow.id).where(EvaluationRow.state.not_in(OPEN), EvaluationRow.created_at < cutoff)
    keys = _keys().where(EvaluationQuestionRow.given.is_not(None), EvaluationQuestionRow.evaluation_id.in_(old))
    return update(EvaluationQuestionRow).where(_is_one_of(keys.limit(limit))).values(given=null(), answers=null())


def forget_older_given(tenant_id: str, limit: int) -> Update:
    """Questions given with a tenant's ended runs, and the answers to them, except those of the `limit` newest."""
    ended = (EvaluationRow.tenant_id == tenant_id, EvaluationRow.source == "given", EvaluationRow.state.not_in(OPEN))
    older = select(EvaluationRow.id).where(*ended).order_by(*(key.desc() for key in RUN_KEYS)).offset(limit)
    mine = (EvaluationQuestionRow.evaluation_id.in_(older), EvaluationQuestionRow.given.is_not(None))
    return update(EvaluationQuestionRow).where(*mine).values(given=null(), answers=null())


def num_runs(tenant_id: str) -> Select[int]:
    """The number of a tenant's runs."""
    return select(func.count()).where(EvaluationRow.tenant_id == tenant_id)


def _keys() -> Select[str, int]:
    return select(EvaluationQuestionRow.evaluation_id, EvaluationQuestionRow.ordinal)


def _is_one_of(keys: Select[str, int]) -> Any:
    return tuple_(EvaluationQuestionRow.evaluation_id, EvaluationQuestionRow.ordinal).in_(keys)
