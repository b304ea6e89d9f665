"""The questions page: the log of questions with the feedback on their answers."""

from datetime import UTC, date, datetime, time, timedelta
from typing import get_args

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.catalog.collection import list_collections
from ragkv.catalog.questions import list_questions
from ragkv.db.feedback import QuestionFilter, Rated
from ragkv.page import MAX_PAGE
from ragkv.parts import Parts

QUESTIONS_A_PAGE = 25
DAY = timedelta(days=1)


@get("/questions", sync_to_thread=True)
def questions_page(
    request: AdminRequest,
    parts: NamedDependency[Parts],
    text: FromQuery[str] = "",
    collection: FromQuery[str] = "",
    rating: FromQuery[str] = "",
    since: FromQuery[str] = "",
    until: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the questions that match, newest first. `since` and `until` are days in UTC, both included."""
    tenant_id = request.user.tenant_id
    collections = list_collections(tenant_id, MAX_PAGE, None, parts.database).items
    chosen = next((one.id for one in collections if collection in (one.id, one.name)), None)
    rated: Rated | None = next((one for one in get_args(Rated) if one == rating), None)
    first, last = _day(since), _day(until)
    end = None if last is None else last + DAY
    wanted = QuestionFilter(tenant_id, chosen, rated, first, end, text or None)
    shown = {
        "text": text,
        "collection": chosen or "",
        "rating": rated or "",
        "since": since if first else "",
        "until": until if last else "",
    }
    asked = {
        "text": text or None,
        "collection": chosen,
        "rating": rated,
        "since": first and first.isoformat(),
        "before": end and end.isoformat(),
    }
    return page(
        request,
        "questions.html",
        questions=list_questions(wanted, QUESTIONS_A_PAGE, cursor, parts.database),
        collections=collections,
        shown=shown,
        export={name: value for name, value in asked.items() if value},
        cursor=cursor,
    )


def _day(text: str) -> datetime | None:
    """The begin of a day of a year that can be counted on from; None for any other text."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return datetime.combine(day, time(), UTC) if date(1970, 1, 1) <= day < date(9999, 1, 1) else None
