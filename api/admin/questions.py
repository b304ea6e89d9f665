"""The questions page: the log of questions with the feedback on their answers."""

from datetime import timedelta
from typing import Annotated, get_args

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from api.admin.collections import chosen_collection, collections_of
from api.admin.shell import AdminRequest, page
from api.v1.questions import PART_CHARACTERS
from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.questions.questions import list_questions, question_log
from ragkv.service.questions.statements import QuestionFilter, Rated
from ragkv.settings import Settings

QUESTIONS_A_PAGE = 25
CHOICES = (7, 30, 90, 365)
"""Days for which the texts of questions may be kept, beside those of the service and none."""
PERIODS = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}


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
    collections = collections_of(tenant_id, database, collection)
    selected = chosen_collection(collections, collection)
    collection_id = selected.id if selected else None
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
        collections=collections,
        shown=shown,
        longest_text=PART_CHARACTERS,
        kept=question_log(tenant_id, settings.question_retention_days, database),
        choices=CHOICES,
        export={name: value for name, value in query.items() if value},
        cursor=cursor,
    )
