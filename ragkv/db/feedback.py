"""Statements about feedback on answers, and about the log of questions with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Select, exists, null, or_, select, union_all
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ragkv.db.tables import CollectionRow, FeedbackPassageRow, FeedbackRow, QuestionRow
from ragkv.errors import Conflict
from ragkv.names import storable

Rating = Literal["up", "down"]
Rated = Literal["up", "down", "any", "none"]


@dataclass(frozen=True, slots=True)
class QuestionFilter:
    """Which of a tenant's questions: of a collection, by rating, asked in [since, until), with a text in any case."""

    tenant_id: str
    collection_id: str | None = None
    rating: Rated | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None


def feedback_on(tenant_id: str, answer_id: str) -> Select[FeedbackRow]:
    return select(FeedbackRow).where(FeedbackRow.answer_id == storable(answer_id), FeedbackRow.tenant_id == tenant_id)


def add_feedback(session: Session, feedback: FeedbackRow, passages: Sequence[FeedbackPassageRow]) -> None:
    """Raises Conflict if there is feedback on the answer meanwhile, or a document is gone."""
    try:
        session.add(feedback)
        session.flush()
        session.add_all(passages)
        session.flush()
    except IntegrityError:
        raise Conflict("documents of the answer are being changed, or it is being rated elsewhere: try again") from None


def asked_at(tenant_id: str, question_id: str) -> Select[datetime]:
    return select(QuestionRow.created_at).where(QuestionRow.id == question_id, QuestionRow.tenant_id == tenant_id)


def logged_questions(wanted: QuestionFilter) -> Select[*tuple[Any, ...]]:
    """(id, text, asked at, mode, finish reason, first-token ms, total ms, collection's id and name, feedback).

    Answers of the answer cache, and questions whose record was removed, are those with feedback alone: no mode, no times.
    """
    found = (
        select(
            _LOG.c.id, _LOG.c.text, _LOG.c.asked_at, _LOG.c.mode, _LOG.c.finish_reason, _LOG.c.ttft_ms, _LOG.c.total_ms,
            _LOG.c.collection_id, CollectionRow.name, FeedbackRow,
        )
        .join(CollectionRow, CollectionRow.id == _LOG.c.collection_id)
        .outerjoin(FeedbackRow, FeedbackRow.answer_id == _LOG.c.id)
        .where(_LOG.c.tenant_id == wanted.tenant_id)
    )  # fmt: skip
    if wanted.collection_id is not None:
        found = found.where(_LOG.c.collection_id == wanted.collection_id)
    if wanted.rating == "none":
        found = found.where(FeedbackRow.answer_id.is_(None))
    elif wanted.rating is not None:
        ratings = ("up", "down") if wanted.rating == "any" else (wanted.rating,)
        found = found.where(FeedbackRow.rating.in_(ratings))
    if wanted.since is not None:
        found = found.where(_LOG.c.asked_at >= wanted.since)
    if wanted.until is not None:
        found = found.where(_LOG.c.asked_at < wanted.until)
    if wanted.text is not None:
        found = found.where(_LOG.c.text.icontains(storable(wanted.text), autoescape=True))
    return found


def known_answers(tenant_id: str, collection_id: str) -> Select[FeedbackRow]:
    """Feedback that says how the question is to be answered: with a correction, or rated up."""
    mine = (FeedbackRow.tenant_id == tenant_id, FeedbackRow.collection_id == collection_id)
    return select(FeedbackRow).where(*mine, or_(FeedbackRow.correction.is_not(None), FeedbackRow.rating == "up"))


def passages_of(answer_id: str) -> Select[str, str]:
    """(title, text) of an answer's passages that are left, in the prompt's order."""
    kept = select(FeedbackPassageRow.title, FeedbackPassageRow.text)
    return kept.where(FeedbackPassageRow.answer_id == answer_id).order_by(FeedbackPassageRow.ordinal)


_LOG = union_all(
    select(
        QuestionRow.tenant_id, QuestionRow.id, QuestionRow.text, QuestionRow.created_at.label("asked_at"), QuestionRow.mode,
        QuestionRow.finish_reason, QuestionRow.ttft_ms, QuestionRow.total_ms, QuestionRow.collection_id,
    ),
    select(
        FeedbackRow.tenant_id, FeedbackRow.answer_id, FeedbackRow.question, FeedbackRow.asked_at, null(), null(), null(), null(),
        FeedbackRow.collection_id,
    ).where(~exists().where(QuestionRow.id == FeedbackRow.answer_id)),
).subquery("log")  # fmt: skip
LOG_KEYS = (_LOG.c.asked_at, _LOG.c.id)
