"""Retention of the text of a tenant's questions."""

from typing import Annotated

import msgspec

from ragkv.errors import Rejected
from ragkv.service.base.database import Database
from ragkv.service.questions.statements import keep_log, log_days_of
from ragkv.text import plural


class QuestionLog(msgspec.Struct, frozen=True):
    """Days for which texts of questions are kept: the tenant's, the service's, and the one that applies."""

    days: Annotated[
        int | None, "Days that the tenant has chosen; 0: texts of questions are not stored; null: none chosen."
    ]
    service_days: Annotated[int | None, "Days for which the service keeps questions; null: for ever."]
    applies: Annotated[int | None, "Days that apply; null: for ever."]


def question_log(tenant_id: str, service_days: int, database: Database) -> QuestionLog:
    """`service_days`: 0 keeps questions for ever, as the setting has it."""
    with database.reading() as session:
        days = session.scalars(log_days_of(tenant_id)).one()
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
    with database.writing() as session:
        session.execute(keep_log(tenant_id, days))
    return question_log(tenant_id, service_days, database)
