"""Statements about answered questions, feedback on them, and how long both are stored."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Delete, Select, SQLColumnExpression, Update, delete, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ragkv.answer.origins import tokens_by_tier
from ragkv.answer.question import Answer, Question
from ragkv.errors import Conflict, NotFound
from ragkv.service.base.database import Database
from ragkv.service.base.page import Keys
from ragkv.service.base.tables import CollectionRow, FeedbackPassageRow, FeedbackRow, QuestionRow, TenantRow
from ragkv.text import storable

Rating = Literal["up", "down"]
Rated = Literal["up", "down", "any", "none"]


def record_question(question: Question, answer: Answer, model: str, database: Database) -> None:
    """Record a question, without its text where the tenant keeps none, and without the answer's text. Raises NotFound
    if its collection is gone."""
    usage = answer.usage
    placed = tokens_by_tier(answer.kv, usage.stitched)
    row = QuestionRow(
        id=question.id,
        tenant_id=question.tenant_id,
        collection_id=question.collection_id,
        text=storable(question.text),
        mode=question.mode,
        policy=question.policy,
        recompute_ratio=question.recompute_ratio,
        finish_reason=answer.finish_reason,
        **asdict(answer.timings),
        prompt_tokens=usage.prompt,
        cached_tokens=usage.cached,
        stitched_tokens=usage.stitched,
        recomputed_tokens=usage.recomputed,
        computed_tokens=usage.computed,
        completion_tokens=usage.completion,
        failed_chunks=usage.failed_chunks,
        disk_tokens=placed["disk"],
        remote_tokens=placed["remote"],
        model=model,
    )
    try:
        with database.writing() as session:
            if session.scalars(log_days_of(question.tenant_id)).one_or_none() == 0:
                row.text = ""
            session.add(row)
    except IntegrityError:
        raise NotFound("the collection was deleted in the meantime") from None


def log_days_of(tenant_id: str) -> Select[int | None]:
    return select(TenantRow.question_log_days).where(TenantRow.id == tenant_id)


def tenants_with_log_days() -> Select[str, int | None]:
    """(id, days) of tenants with a setting for how many days texts of questions are kept."""
    return select(TenantRow.id, TenantRow.question_log_days).where(TenantRow.question_log_days.is_not(None))


def keep_log(tenant_id: str, days: int | None) -> Update:
    return update(TenantRow).where(TenantRow.id == tenant_id).values(question_log_days=days)


def forget_texts(tenant_id: str, cutoff: datetime, limit: int) -> Update:
    """Texts of a tenant's questions that were asked before the cutoff."""
    old = (QuestionRow.tenant_id == tenant_id, QuestionRow.created_at < cutoff, QuestionRow.text != "")
    ids = select(QuestionRow.id).where(*old).order_by(QuestionRow.created_at).limit(limit)
    return update(QuestionRow).where(QuestionRow.id.in_(ids)).values(text="")


def forget_questions(cutoff: datetime, limit: int) -> Delete:
    """Questions that were asked before the cutoff."""
    old = select(QuestionRow.id).where(QuestionRow.created_at < cutoff).order_by(QuestionRow.created_at).limit(limit)
    return delete(QuestionRow).where(QuestionRow.id.in_(old))


def forget_questions_about(collection_id: str, limit: int) -> Delete:
    ids = select(QuestionRow.id).where(QuestionRow.collection_id == collection_id).limit(limit)
    return delete(QuestionRow).where(QuestionRow.id.in_(ids))


@dataclass(frozen=True, slots=True)
class QuestionFilter:
    """Filter over a tenant's questions: of a collection, by rating, asked in [since, until), with a text in any
    case."""

    tenant_id: str
    collection_id: str | None = None
    rating: Rated | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None


def feedback_on(tenant_id: str, answer_id: str) -> Select[FeedbackRow]:
    return select(FeedbackRow).where(FeedbackRow.answer_id == storable(answer_id), FeedbackRow.tenant_id == tenant_id)


def add_feedback(session: Session, feedback: FeedbackRow, passages: Sequence[FeedbackPassageRow]) -> None:
    """Add feedback with its passages. Raises Conflict if the answer has got other feedback, or a document is gone."""
    try:
        session.add(feedback)
        session.flush()
        session.add_all(passages)
        session.flush()
    except IntegrityError:
        raise Conflict("documents of the answer are being changed, or it is being rated elsewhere: try again") from None


def asked_at(tenant_id: str, question_id: str) -> Select[datetime]:
    return select(QuestionRow.created_at).where(QuestionRow.id == question_id, QuestionRow.tenant_id == tenant_id)


def logged_questions(criteria: QuestionFilter) -> list[tuple[Select[*tuple[Any, ...]], Keys]]:
    """Statements with the keys of their order, which find every question once, together: (id, text, asked at, mode,
    finish reason, first-token ms, total ms, collection's id and name, feedback).

    Answers of the answer cache, and questions whose record was removed, have feedback alone: no mode, no times.
    Questions whose text is not kept are found if they have feedback, which has a copy of it.
    """
    recorded = (
        select(QuestionRow.id, QuestionRow.text, QuestionRow.created_at.label("asked_at"), *_FACTS)
        .join(CollectionRow, CollectionRow.id == QuestionRow.collection_id)
        .outerjoin(FeedbackRow, FeedbackRow.answer_id == QuestionRow.id)
        .where(QuestionRow.text != "", *_matching(criteria, QuestionRow, QuestionRow.text, QuestionRow.created_at))
    )
    rated = (
        select(FeedbackRow.answer_id.label("id"), FeedbackRow.question.label("text"), FeedbackRow.asked_at, *_FACTS)
        .join(CollectionRow, CollectionRow.id == FeedbackRow.collection_id)
        .outerjoin(QuestionRow, FeedbackRow.answer_id == QuestionRow.id)
        .where(*_matching(criteria, FeedbackRow, FeedbackRow.question, FeedbackRow.asked_at))
    )
    if criteria.rating == "none":
        return [(recorded.where(FeedbackRow.answer_id.is_(None)), _RECORDED)]
    if criteria.rating == "any":
        return [(rated, _RATED)]
    if criteria.rating is not None:
        return [(rated.where(FeedbackRow.rating == criteria.rating), _RATED)]
    return [(recorded, _RECORDED), (rated.where(or_(QuestionRow.id.is_(None), QuestionRow.text == "")), _RATED)]


def known_answers(tenant_id: str, collection_id: str) -> Select[FeedbackRow]:
    """Feedback that says how the question is to be answered: with a correction, or rated up."""
    mine = (FeedbackRow.tenant_id == tenant_id, FeedbackRow.collection_id == collection_id)
    return select(FeedbackRow).where(*mine, or_(FeedbackRow.correction.is_not(None), FeedbackRow.rating == "up"))


def passages_of(answer_id: str) -> Select[str, str]:
    """(title, text) of an answer's passages that are left, in the prompt's order."""
    statement = select(FeedbackPassageRow.title, FeedbackPassageRow.text)
    return statement.where(FeedbackPassageRow.answer_id == answer_id).order_by(FeedbackPassageRow.ordinal)


_RECORDED: Keys = (QuestionRow.created_at.expression, QuestionRow.id.expression)
_RATED: Keys = (FeedbackRow.asked_at.expression, FeedbackRow.answer_id.expression)
_FACTS = (
    QuestionRow.mode, QuestionRow.finish_reason, QuestionRow.ttft_ms, QuestionRow.total_ms,
    CollectionRow.id.label("collection_id"), CollectionRow.name, FeedbackRow,
)  # fmt: skip


def _matching(
    criteria: QuestionFilter,
    kind: type[QuestionRow | FeedbackRow],
    text: SQLColumnExpression[str],
    asked_at: SQLColumnExpression[datetime],
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [kind.tenant_id == criteria.tenant_id]
    if criteria.collection_id is not None:
        conditions.append(kind.collection_id == criteria.collection_id)
    if criteria.since is not None:
        conditions.append(asked_at >= criteria.since)
    if criteria.until is not None:
        conditions.append(asked_at < criteria.until)
    if criteria.text is not None:
        conditions.append(text.icontains(storable(criteria.text), autoescape=True))
    return conditions
