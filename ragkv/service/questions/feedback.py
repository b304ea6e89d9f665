"""Feedback on answers: a rating, a corrected answer, a comment."""

from datetime import datetime
from typing import Annotated

import msgspec

from ragkv.errors import NotFound
from ragkv.ids import is_id, utc_now
from ragkv.service.answer_cache.recent import KEPT_S, RecentAnswer, RecentAnswers, checksum
from ragkv.service.audit.statements import note_deletions, unlist_deletion
from ragkv.service.base.database import Database
from ragkv.service.base.page import view_from
from ragkv.service.base.tables import CollectionRow, FeedbackPassageRow, FeedbackRow
from ragkv.service.documents.indexed import DatabaseSource
from ragkv.service.questions.statements import Rating, add_feedback, asked_at, feedback_on
from ragkv.text import storable

TOO_LATE = f"no such answer, or it is older than {KEPT_S // 3600} hours: rate an answer within that time"
CHANGED = "documents of this answer were deleted or changed since: ask again, and rate the new answer"
_ID_PREFIXES = ("chatcmpl-", "resp_")


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """Feedback on an answer. The last one given counts."""

    rating: Annotated[Rating, "Rating of the answer: `up` or `down`."]
    correction: Annotated[str | None, "Corrected answer; null for none."]
    comment: Annotated[str | None, "Comment on the answer; null for none."]
    answer: Annotated[str, "Text of the answer that the feedback is about."]
    updated_at: Annotated[datetime, "Time of the last feedback."]


def give_feedback(
    tenant_id: str,
    answer_id: str,
    rating: Rating,
    correction: str | None,
    comment: str | None,
    recent: RecentAnswers,
    source: DatabaseSource,
    database: Database,
) -> Feedback:
    """Give feedback on an answer, in place of earlier feedback. Empty texts count as none.

    Raises NotFound for an answer that is not the tenant's, or whose first feedback comes too late: it is too old, or
    a passage of it is gone or changed; Conflict if its documents are being changed.
    """
    answer_id = plain_id(answer_id)
    answer = recent.find(tenant_id, answer_id) if is_id(answer_id) else None
    passages = [] if answer is None else _passages(tenant_id, answer_id, answer, source)
    values = {"rating": rating, "correction": _text(correction), "comment": _text(comment), "updated_at": utc_now()}
    with database.writing() as session:
        row = session.scalar(feedback_on(tenant_id, answer_id).with_for_update())
        if row is None:
            if answer is None or session.get(CollectionRow, answer.collection_id) is None:
                raise NotFound(TOO_LATE)
            if len(passages) < len(answer.chunks):
                raise NotFound(CHANGED)
            when = session.scalar(asked_at(tenant_id, answer_id)) or utc_now()
            row = FeedbackRow(
                answer_id=answer_id,
                tenant_id=tenant_id,
                collection_id=answer.collection_id,
                question=storable(answer.question),
                answer=storable(answer.answer),
                num_passages=len(answer.chunks),
                asked_at=when,
                **values,
            )
            add_feedback(session, row, passages)
            session.execute(unlist_deletion(FeedbackRow, answer_id))
        else:
            for name, value in values.items():
                setattr(row, name, value)
    return view_from(Feedback, row)


def remove_feedback(tenant_id: str, answer_id: str, database: Database) -> None:
    """Remove feedback and all that was kept for it. Raises NotFound."""
    with database.writing() as session:
        row = session.scalar(feedback_on(tenant_id, plain_id(answer_id)))
        if row is None:
            raise NotFound("there is no feedback on this answer")
        session.delete(row)
        note_deletions(session, FeedbackRow, [row.answer_id])


def plain_id(answer_id: str) -> str:
    """The id of an answer that may be given as the id of OpenAI's object."""
    for prefix in _ID_PREFIXES:
        answer_id = answer_id.removeprefix(prefix)
    return answer_id


def _passages(tenant_id: str, answer_id: str, answer: RecentAnswer, source: DatabaseSource) -> list[FeedbackPassageRow]:
    """The passages that are still as they stood in the prompt."""
    chunks = {chunk.id: chunk for chunk in source.chunks(tenant_id, [chunk_id for chunk_id, _ in answer.chunks])}
    return [
        FeedbackPassageRow(
            answer_id=answer_id,
            ordinal=ordinal,
            document_id=chunks[chunk_id].document_id,
            title=chunks[chunk_id].title,
            text=chunks[chunk_id].text,
        )
        for ordinal, (chunk_id, digest) in enumerate(answer.chunks)
        if chunk_id in chunks and checksum(chunks[chunk_id]) == digest
    ]


def _text(text: str | None) -> str | None:
    return storable(text.strip()) or None if text else None
