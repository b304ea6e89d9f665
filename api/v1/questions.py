"""/v1/questions and /v1/answers: the log of questions, feedback on answers, and the evaluation set made of both."""

from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Stream
from msgspec import Meta

from api.access.auth import administering, reading
from api.http.errors import json_problems, problems
from api.http.methods import delete, get, put
from api.v1.lists import JSON_LINES, Limit, json_lines, read_moment
from ragkv.service.answer_cache.recent import RecentAnswers
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_COLLECTION, collection_ref
from ragkv.service.documents.indexed import DatabaseSource
from ragkv.service.questions.feedback import Feedback, give_feedback, remove_feedback
from ragkv.service.questions.questions import (
    QuestionLog,
    QuestionPage,
    all_questions,
    evaluation_set,
    keep_question_log,
    list_questions,
    question_log,
)
from ragkv.service.questions.statements import QuestionFilter, Rated, Rating
from ragkv.settings import Settings

PART_CHARACTERS = 1000
"""Length of a text that questions are searched for: SQLite takes no pattern of more than 50,000 bytes."""

Days = Annotated[int, Meta(ge=0, le=36_500)]
FeedbackText = Annotated[str, Meta(max_length=20_000)]
TextPart = Annotated[str | None, QueryParameter(max_length=PART_CHARACTERS)]


class FeedbackBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Feedback on an answer. It replaces earlier feedback."""

    rating: Annotated[Rating, "Rating of the answer: `up` or `down`."]
    correction: Annotated[FeedbackText | None, "Corrected answer; null for none."] = None
    comment: Annotated[FeedbackText | None, "Comment on the answer; null for none."] = None


class RetentionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The retention of the tenant's question log."""

    days: Annotated[
        Days | None,
        "Days for which texts of questions are kept; 0: they are not stored at all; null: as long as the service "
        "keeps questions.",
    ] = None


@put(
    "/{answer_id:str}/feedback",
    "Rate an answer",
    json_problems(
        NOT_FOUND="No such answer, it is older than a day, or a passage of it was deleted or changed before any feedback.",
        CONFLICT="Documents of the answer are being changed, or it is being rated by another request.",
    ),
)
def rate(
    answer_id: FromPath[str],
    data: JSONBody[FeedbackBody],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    chunk_source: NamedDependency[DatabaseSource],
    recent_answers: NamedDependency[RecentAnswers],
) -> Feedback:
    """Rate an answer, optionally with a corrected answer and a comment. Replaces earlier feedback on it.

    The question, the answer and the passages of its prompt are stored with the feedback.
    """
    feedback = (data.rating, data.correction, data.comment)
    return give_feedback(caller.tenant_id, answer_id, *feedback, recent_answers, chunk_source, database)


@delete("/{answer_id:str}/feedback", "Delete feedback", problems(NOT_FOUND="No feedback on this answer."))
def unrate(answer_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]) -> None:
    """Delete the feedback on an answer, and the copies of the answer and its passages."""
    remove_feedback(caller.tenant_id, answer_id, database)


def question_filter(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    collection: FromQuery[str | None] = None,
    rating: FromQuery[Rated | None] = None,
    since: FromQuery[str | None] = None,
    before: FromQuery[str | None] = None,
    text: TextPart = None,
) -> QuestionFilter:
    """The dependency `criteria`. Raises NotFound for the collection, Rejected for a time that is none."""
    ref = collection_ref(caller.tenant_id, collection, database) if collection else None
    times = read_moment("since", since), read_moment("before", before)
    return QuestionFilter(caller.tenant_id, ref.collection_id if ref else None, rating, *times, text or None)


@get("/", "List questions", problems(NOT_FOUND="No such collection.", UNPROCESSABLE_ENTITY="Invalid cursor or time."))
def show(
    criteria: NamedDependency[QuestionFilter],
    database: NamedDependency[Database],
    limit: FromQuery[Limit] = 50,
    cursor: FromQuery[str | None] = None,
) -> QuestionPage:
    """List the tenant's questions with the feedback on their answers, newest first.

    Answers from the answer cache are listed if they have feedback.
    """
    return list_questions(criteria, limit, cursor, database)


@get(
    "/export",
    "Download the question log",
    problems(NOT_FOUND="No such collection.", UNPROCESSABLE_ENTITY="Invalid time."),
    media_type=JSON_LINES,
)
def export(criteria: NamedDependency[QuestionFilter], database: NamedDependency[Database]) -> Stream:
    """Download all questions that match, newest first, as JSON lines."""
    return json_lines(all_questions(criteria, database), "questions.jsonl")


@get(
    "/evaluation",
    "Download the evaluation set of a collection",
    problems(NOT_FOUND="No such collection."),
    media_type=JSON_LINES,
)
def evaluation(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    collection: FromQuery[str] = DEFAULT_COLLECTION,
) -> Stream:
    """Download the rated questions of a collection as JSON lines, in the format of `ragkv eval fidelity --data`.

    The answer is the correction if there is one, otherwise the answer that was rated up. Questions whose passages are
    no longer all stored are omitted.
    """
    ref = collection_ref(caller.tenant_id, collection, database)
    return json_lines(filter(None, evaluation_set(ref, database)), "evaluation.jsonl")


@get("/retention", "Get the retention of the question log", problems())
def retention(
    caller: NamedDependency[Caller], database: NamedDependency[Database], settings: NamedDependency[Settings]
) -> QuestionLog:
    """Get how long the texts of the tenant's questions are kept."""
    return question_log(caller.tenant_id, settings.question_retention_days, database)


@put(
    "/retention",
    "Update the retention of the question log",
    json_problems(UNPROCESSABLE_ENTITY="Longer than the service keeps questions."),
)
def keep(
    data: JSONBody[RetentionBody],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
) -> QuestionLog:
    """Update how long the texts of the tenant's questions are kept. Older ones are removed within the hour.

    Counts and times of questions are kept for the statistics, without their texts. Feedback is kept until it is
    deleted.
    """
    return keep_question_log(caller.tenant_id, data.days, settings.question_retention_days, database)


answers_router = Router("/v1/answers", route_handlers=[rate, unrate], guards=[reading], tags=["questions"])


questions_router = Router(
    "/v1/questions",
    route_handlers=[show, export, evaluation, retention, keep],
    dependencies={"criteria": Provide(question_filter, sync_to_thread=True)},
    guards=[administering],
    tags=["questions"],
)
