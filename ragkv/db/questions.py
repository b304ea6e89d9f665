"""The record of answered questions."""

from ragkv.answer.origins import tokens_from
from ragkv.answer.question import Answer, Question
from ragkv.db.database import Database
from ragkv.db.tables import QuestionRow
from ragkv.names import storable


def question_row(question: Question, answer: Answer, model: str) -> QuestionRow:
    """The row of an answered question. The answer's text is not kept."""
    timings, usage = answer.timings, answer.usage
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
        disk_tokens=min(tokens_from("disk", answer.kv), usage.stitched),
        remote_tokens=min(tokens_from("remote", answer.kv), usage.stitched),
        model=model,
    )


def record_question(question: Question, answer: Answer, model: str, database: Database) -> None:
    with database.writing() as session:
        session.add(question_row(question, answer, model))
