"""Statements about the time and tokens of questions: for one tenant, since a given time."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Select,
    SQLColumnExpression,
    and_,
    case,
    cast,
    extract,
    func,
    or_,
    select,
)

from ragkv.service.base.status import OPEN_JOBS, JobStatus
from ragkv.service.base.tables import CollectionRow, JobRow, QuestionRow

MEDIAN, HIGH, HIGHEST = 50, 95, 99
"""The percentiles, by nearest rank: the smallest value that this percentage does not exceed."""

Rows = Select[*tuple[Any, ...]]
Costs = tuple[float, float, float]
"""Milliseconds: for a prompt, for each of its tokens that is computed,
for each pair of one and a token it attends to."""


def token_totals(tenant_id: str, since: datetime) -> Rows:
    """A row a mode: (mode, questions, failed chunks, tokens from the disk and from the object store, then those of
    `_TOKENS`)."""
    summed = (QuestionRow.failed_chunks, QuestionRow.disk_tokens, QuestionRow.remote_tokens, *_TOKENS)
    sums = (func.coalesce(func.sum(column), 0) for column in summed)
    return select(QuestionRow.mode, func.count(), *sums).where(*_mine(tenant_id, since)).group_by(QuestionRow.mode)


def token_series(tenant_id: str, since: datetime, width_s: int) -> Rows:
    """A row a bucket: (bucket, questions, then the tokens of `_TOKENS`). Bucket i begins at i * width_s since 1970."""
    sums = (func.sum(column) for column in _TOKENS)
    counted = select(_bucket(width_s), func.count(), *sums).where(*_mine(tenant_id, since))
    return counted.group_by("bucket")  # by its name: as an expression its parameters would make it another one


def ttft_percentiles(tenant_id: str, since: datetime, width_s: int | None = None) -> Rows:
    """(mode, median, 95th percentile) of the milliseconds to the first token; with a width, of each bucket, which comes
    before the mode."""
    groups = (QuestionRow.mode,) if width_s is None else (_bucket(width_s), QuestionRow.mode)
    return _percentiles(QuestionRow.ttft_ms, groups, _mine(tenant_id, since))


def load_percentiles(tenant_id: str, since: datetime) -> Rows:
    """(tier, questions, median, 99th percentile) of the milliseconds of placing KV, by the farthest tier it came
    from."""
    where = (*_mine(tenant_id, since), _STITCHED, QuestionRow.stitched_tokens > 0)
    return _percentiles(QuestionRow.kv_load_ms, (_FARTHEST_TIER,), where, (MEDIAN, HIGHEST), counted=True)


def full_percentiles(tenant_id: str, since: datetime, costs: Costs, width_s: int | None = None) -> Rows:
    """(mode, or with a width the bucket, median, 95th percentile) of what the stitched questions would have taken in
    full, at these costs."""
    group = QuestionRow.mode if width_s is None else _bucket(width_s)
    return _percentiles(_in_full(costs), (group,), (*_mine(tenant_id, since), _STITCHED))


def full_runs(tenant_id: str, model: str, since: datetime, limit: int) -> Select[int, int, float]:
    """(tokens computed, tokens cached, engine's milliseconds) of the latest questions in full to a model."""
    timed = (QuestionRow.mode == "full", QuestionRow.model == model, QuestionRow.computed_tokens > 0)
    statement = select(QuestionRow.computed_tokens, QuestionRow.cached_tokens, QuestionRow.engine_ttft_ms)
    return statement.where(*_mine(tenant_id, since), *timed).order_by(QuestionRow.created_at.desc()).limit(limit)


def unstitched_runs(tenant_id: str, model: str, since: datetime, limit: int) -> Select[int, int, float]:
    """`full_runs`, of questions that were to be stitched and were not: no KV, or all of it recomputed."""
    ran = QuestionRow.recomputed_tokens + QuestionRow.computed_tokens
    timed = (_STITCHED, QuestionRow.model == model, QuestionRow.stitched_tokens == 0, QuestionRow.recomputed_tokens > 0)
    statement = select(ran, QuestionRow.cached_tokens, QuestionRow.engine_ttft_ms)
    return statement.where(*_mine(tenant_id, since), *timed).order_by(QuestionRow.created_at.desc()).limit(limit)


def latest_questions(tenant_id: str, limit: int) -> Select[QuestionRow, str]:
    """(question, name of its collection), newest first."""
    joined = select(QuestionRow, CollectionRow.name).join(CollectionRow, CollectionRow.id == QuestionRow.collection_id)
    newest = (QuestionRow.created_at.desc(), QuestionRow.id)
    return joined.where(QuestionRow.tenant_id == tenant_id).order_by(*newest).limit(limit)


def unfinished_jobs(tenant_id: str, failed_since: datetime) -> Select[JobStatus, int]:
    """(status, how many): documents with a job that waits, that runs, and that failed lately."""
    failed = and_(JobRow.status == JobStatus.FAILED, JobRow.updated_at >= failed_since)
    is_shown = or_(JobRow.status.in_(OPEN_JOBS), failed)
    documents = func.count(JobRow.document_id.distinct())
    return select(JobRow.status, documents).where(JobRow.tenant_id == tenant_id, is_shown).group_by(JobRow.status)


_TOKENS = (
    QuestionRow.prompt_tokens, QuestionRow.cached_tokens, QuestionRow.stitched_tokens, QuestionRow.recomputed_tokens,
    QuestionRow.computed_tokens, QuestionRow.completion_tokens,
)  # fmt: skip
_STITCHED = QuestionRow.mode == "stitched"
_FARTHEST_TIER = case((QuestionRow.remote_tokens > 0, "remote"), (QuestionRow.disk_tokens > 0, "disk"), else_="host")


def _mine(tenant_id: str, since: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return QuestionRow.tenant_id == tenant_id, QuestionRow.created_at >= since


def _bucket(width_s: int) -> ColumnElement[int]:
    return (cast(extract("epoch", QuestionRow.created_at), BigInteger) // width_s).label("bucket")


def _in_full(costs: Costs) -> ColumnElement[float]:
    """Estimated time with full prefill: measured retrieval plus computing all uncached tokens."""
    per_prompt, per_token, per_pair = costs
    cached = cast(QuestionRow.cached_tokens, Double)
    computed = cast(QuestionRow.prompt_tokens, Double) - cached
    pairs = computed * (cached + computed / 2)
    return QuestionRow.retrieve_ms + per_prompt + per_token * computed + per_pair * pairs


def _percentiles(
    value: SQLColumnExpression[float],
    groups: tuple[SQLColumnExpression[Any], ...],
    where: tuple[SQLColumnExpression[bool], ...],
    percents: tuple[int, int] = (MEDIAN, HIGH),
    *,
    counted: bool = False,
) -> Rows:
    """A row a group: the groups, its number of rows if asked for, the percentiles."""
    names = [f"group_{index}" for index in range(len(groups))]
    labelled: list[ColumnElement[Any]] = [group.label(name) for group, name in zip(groups, names, strict=True)]
    # A column, to be ordered by: SQLAlchemy orders by the parts of a sum one after the other.
    values = select(*labelled, value.label("value")).where(*where).subquery()
    columns = [values.c[name] for name in names]
    share = func.cume_dist().over(partition_by=columns, order_by=values.c.value).label("share")
    ranked = select(*columns, values.c.value, share).subquery()
    at = (func.min(case((ranked.c.share >= percent / 100, ranked.c.value))) for percent in percents)
    numbers = (func.count(),) if counted else ()
    columns = [ranked.c[name] for name in names]
    return select(*columns, *numbers, *at).group_by(*columns)
