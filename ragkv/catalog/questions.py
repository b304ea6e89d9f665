"""The log of questions with their feedback, and the evaluation set made of the rated ones."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from ragkv.catalog.feedback import Feedback, feedback_view
from ragkv.db.database import Database
from ragkv.db.feedback import QuestionFilter, known_answers, logged_questions, passages_of
from ragkv.db.pages import rows_behind
from ragkv.db.tables import FeedbackRow
from ragkv.page import MAX_PAGE, Id, Moment, Page, all_pages, from_cursor
from ragkv.tenancy import CollectionRef


class LoggedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was asked, with the feedback on its answer. The answer's text is kept with feedback alone."""

    id: str
    question: str
    asked_at: datetime
    collection_id: str
    collection: str
    mode: str | None
    finish_reason: str | None
    ttft_ms: float | None
    total_ms: float | None
    feedback: Feedback | None


class QuestionPage(msgspec.Struct, frozen=True):
    """A page of questions, newest first."""

    items: list[LoggedQuestion]
    next: str | None


class SetPassage(msgspec.Struct, frozen=True):
    """A passage of a question of an evaluation set."""

    title: str
    text: str


class SetQuestion(msgspec.Struct, frozen=True):
    """A line of an evaluation set, as `ragkv eval fidelity` reads it."""

    id: str
    question: str
    answers: tuple[str, ...]
    passages: tuple[SetPassage, ...]


def list_questions(wanted: QuestionFilter, limit: int, cursor: str | None, database: Database) -> QuestionPage:
    """A page of the question log, newest first. Raises Rejected for an invalid cursor."""
    after = from_cursor(cursor, tuple[Moment, Id])
    with database.reading() as session:
        parts = [
            rows_behind(session, found, keys, limit, after, descending=True) for found, keys in logged_questions(wanted)
        ]
        rows = sorted((row for part in parts for row in part.items), key=_position, reverse=True)
        items = [_view(row) for row in rows[:limit]]
    more = len(rows) > limit or any(part.more for part in parts)
    return QuestionPage(items, Page(rows[:limit], more).next(_position))


def all_questions(wanted: QuestionFilter, database: Database) -> Iterator[LoggedQuestion]:
    """Every question of the log, newest first, read a page at a time."""
    return all_pages(lambda cursor: list_questions(wanted, MAX_PAGE, cursor, database))


def evaluation_set(ref: CollectionRef, database: Database) -> tuple[list[SetQuestion], int]:
    """A collection's questions with known answers, the oldest first, and the number of those left out.

    An answer is known if it was corrected, or rated up. Left out are those with an empty answer, and those without
    all the passages of their prompt: a document was deleted, or replaced before the feedback.
    """
    made, left_out = [], 0
    with database.reading() as session:
        found = session.scalars(known_answers(ref.tenant_id, ref.collection_id).order_by(*_OLDEST_FIRST)).all()
        for row in found:
            passages = tuple(SetPassage(title, text) for title, text in session.execute(passages_of(row.answer_id)))
            answer = row.correction or row.answer
            if answer and passages and len(passages) == row.num_passages:
                made.append(SetQuestion(row.answer_id, row.question, (answer,), passages))
            else:
                left_out += 1
    return made, left_out


_OLDEST_FIRST = (FeedbackRow.asked_at, FeedbackRow.answer_id)


def _position(row: Any) -> tuple[datetime, str]:
    return row.asked_at, row.id


def _view(row: Any) -> LoggedQuestion:
    """View of a row of `logged_questions`."""
    return LoggedQuestion(
        id=row.id,
        question=row.text,
        asked_at=row.asked_at,
        collection_id=row.collection_id,
        collection=row.name,
        mode=row.mode,
        finish_reason=row.finish_reason,
        ttft_ms=row.ttft_ms,
        total_ms=row.total_ms,
        feedback=None if row.FeedbackRow is None else feedback_view(row.FeedbackRow),
    )
