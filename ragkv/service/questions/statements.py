"""The record of answered questions."""

from datetime import datetime

from sqlalchemy import Select, Update, select, update
from sqlalchemy.exc import IntegrityError

from ragkv.answer.origins import tokens_by_tier
from ragkv.answer.question import Answer, Question
from ragkv.errors import NotFound
from ragkv.service.base.database import Database
from ragkv.service.base.tables import QuestionRow, TenantRow
from ragkv.text import storable


def question_row(question: Question, answer: Answer, model: str) -> QuestionRow:
    """The row of an answered question. The answer's text is not kept."""
    timings, usage = answer.timings, answer.usage
    placed = tokens_by_tier(answer.kv, usage.stitched)
    return QuestionRow(
        id=question.id,
        tenant_id=question.tenant_id,
        collection_id=question.collection_id,
        text=storable(question.text),
        mode=question.mode,
        policy=question.policy,
        recompute_ratio=question.recompute_ratio,
        finish_reason=answer.finish_reason,
        retrieve_ms=timings.retrieve_ms,
        plan_ms=timings.plan_ms,
        ttft_ms=timings.ttft_ms,
        engine_ttft_ms=timings.engine_ttft_ms,
        kv_load_ms=timings.kv_load_ms,
        recompute_ms=timings.recompute_ms,
        total_ms=timings.total_ms,
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


def record_question(question: Question, answer: Answer, model: str, database: Database) -> None:
    """Record a question, without its text where the tenant keeps none. Raises NotFound if its collection is gone."""
    row = question_row(question, answer, model)
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
