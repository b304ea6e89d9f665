"""The questions a tenant asked last."""

from ragkv.clock import utc_now
from ragkv.db.database import Database
from ragkv.db.statistics import latest_questions
from ragkv.db.tables import QuestionRow
from ragkv.statistics.basis import Known, known_price
from ragkv.statistics.summary import counts
from ragkv.statistics.views import Asked


def latest(database: Database, tenant_id: str, model: str, limit: int) -> list[Asked]:
    """Newest first, whenever they were asked."""
    with database.reading() as session:
        known = known_price(session, tenant_id, model, utc_now())
        return [_asked(row, name, known) for row, name in session.execute(latest_questions(tenant_id, limit))]


def _asked(row: QuestionRow, collection: str, known: Known | None) -> Asked:
    tokens = counts(
        (
            row.prompt_tokens,
            row.cached_tokens,
            row.stitched_tokens,
            row.recomputed_tokens,
            row.computed_tokens,
            row.completion_tokens,
        )
    )
    return Asked(
        id=row.id,
        text=row.text,
        collection=collection,
        mode=row.mode,
        ttft_ms=row.ttft_ms,
        in_full_ms=_in_full(row, known),
        tokens=tokens,
        created_at=row.created_at,
    )


def _in_full(row: QuestionRow, known: Known | None) -> float | None:
    if known is None or row.mode != "stitched":
        return None
    return row.retrieve_ms + known.price.of(row.prompt_tokens - row.cached_tokens, row.cached_tokens)
