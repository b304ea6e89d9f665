"""The log of questions with their feedback, how long it is kept, and the evaluation set made of the rated ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec

from ragkv.errors import Rejected
from ragkv.service.base.database import Database
from ragkv.service.base.page import MAX_PAGE, Id, Moment, Page, all_pages, from_cursor, rows_behind, view_from
from ragkv.service.base.tables import FeedbackRow
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.questions.feedback import Feedback
from ragkv.service.questions.statements import (
    QuestionFilter,
    keep_log,
    known_answers,
    log_days_of,
    logged_questions,
    passages_of,
)
from ragkv.text import plural


class LoggedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was asked, with the feedback on its answer. The answer's text is kept with feedback alone."""

    id: Annotated[str, "Id of the question and of its answer."]
    question: Annotated[str, "The question."]
    asked_at: Annotated[datetime, "Time of the question."]
    collection_id: str
    collection: Annotated[str, "Name of the collection."]
    mode: Annotated[
        str | None,
        "Mode of the prompt; null for an answer from the answer cache, or if the record of the question was removed.",
    ]
    finish_reason: Annotated[
        str | None, "`stop`: the answer is complete. `length`: it reached the maximum number of tokens."
    ]
    ttft_ms: Annotated[float | None, "Time to the first token in milliseconds."]
    total_ms: Annotated[float | None, "Time to the whole answer in milliseconds."]
    feedback: Annotated[Feedback | None, "Feedback on the answer; null without any."]


class QuestionPage(msgspec.Struct, frozen=True):
    """A page of questions, newest first."""

    items: Annotated[list[LoggedQuestion], "Questions, newest first."]
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


def list_questions(criteria: QuestionFilter, limit: int, cursor: str | None, database: Database) -> QuestionPage:
    """A page of the question log, newest first. Raises Rejected for an invalid cursor."""
    after = from_cursor(cursor, tuple[Moment, Id])
    with database.reading() as session:
        parts: list[Page[Any]] = []
        for statement, keys in logged_questions(criteria):
            full = [part.items[-1].asked_at for part in parts if part.more]  # older ones are on later pages
            newer = statement.where(*(keys[0] >= oldest for oldest in full))
            parts.append(rows_behind(session, newer, keys, limit, after, descending=True))
        rows = sorted((row for part in parts for row in part.items), key=_position, reverse=True)
        items = [
            view_from(
                LoggedQuestion,
                row,
                question=row.text,
                collection=row.name,
                feedback=None if row.FeedbackRow is None else view_from(Feedback, row.FeedbackRow),
            )
            for row in rows[:limit]
        ]
    more = len(rows) > limit or any(part.more for part in parts)
    return QuestionPage(items, Page(rows[:limit], more).next(_position))


class QuestionLog(msgspec.Struct, frozen=True):
    """Days for which texts of questions are kept: the tenant's, the service's, and the one that applies."""

    days: Annotated[
        int | None, "Days that the tenant has chosen; 0: texts of questions are not stored; null: none chosen."
    ]
    service_days: Annotated[int | None, "Days for which the service keeps questions; null: for ever."]
    applies: Annotated[int | None, "Days that apply; null: for ever."]


def question_log(tenant_id: str, service_days: int, database: Database) -> QuestionLog:
    """`service_days`: 0 keeps questions for ever, as the setting has it."""
    days = database.scalar(log_days_of(tenant_id))
    service = service_days or None
    return QuestionLog(days, service, service if days is None else min(days, service or days))


def keep_question_log(tenant_id: str, days: int | None, service_days: int, database: Database) -> QuestionLog:
    """Keep texts for `days`, 0 for none at all, None as the service does. Older ones are removed within the hour.

    Raises Rejected for longer than the service keeps questions.
    """
    if days is not None and service_days and days > service_days:
        raise Rejected(
            f"the service keeps questions for {plural(service_days, 'day')} at most (RAGKV_QUESTION_RETENTION_DAYS)"
        )
    database.execute(keep_log(tenant_id, days))
    return question_log(tenant_id, service_days, database)


@dataclass(frozen=True, slots=True)
class _SetPage:
    items: list[SetQuestion | None]
    next: str | None


def all_questions(criteria: QuestionFilter, database: Database) -> Iterator[LoggedQuestion]:
    """Every question of the log, newest first, read a page at a time."""
    return all_pages(lambda cursor: list_questions(criteria, MAX_PAGE, cursor, database))


def evaluation_set(ref: CollectionRef, database: Database) -> Iterator[SetQuestion | None]:
    """A collection's questions with known answers, the oldest first, read a page at a time. None for each left out.

    An answer is known if it was corrected, or rated up. Left out are those with an empty answer, and those without
    all the passages of their prompt: a document was deleted, or replaced before the feedback.
    """

    def page_at(cursor: str | None) -> _SetPage:
        after = from_cursor(cursor, tuple[Moment, str])
        with database.reading() as session:
            page = rows_behind(session, known_answers(ref.tenant_id, ref.collection_id), _OLDEST_FIRST, MAX_PAGE, after)
            questions: list[SetQuestion | None] = []
            for (feedback,) in page.items:
                titled_texts = session.execute(passages_of(feedback.answer_id))
                passages = tuple(SetPassage(title, text) for title, text in titled_texts)
                answer = feedback.correction or feedback.answer
                is_whole = answer and passages and len(passages) == feedback.num_passages
                question = SetQuestion(feedback.answer_id, feedback.question, (answer,), passages)
                questions.append(question if is_whole else None)
            return _SetPage(questions, page.next(lambda row: (row.FeedbackRow.asked_at, row.FeedbackRow.answer_id)))

    return all_pages(page_at)


_OLDEST_FIRST = (FeedbackRow.asked_at.expression, FeedbackRow.answer_id.expression)


def _position(row: Any) -> tuple[datetime, str]:
    return row.asked_at, row.id
