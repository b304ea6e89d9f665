"""What questions took over time, in steps of equal length."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ragkv.db.statistics import full_series, token_series, ttft_series
from ragkv.statistics.basis import Known
from ragkv.statistics.views import Bucket

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_MS_OF = {"stitched": "stitched_ms", "full": "full_ms"}


def series(
    session: "Session", tenant_id: str, between: tuple[datetime, datetime], width_s: int, known: Known | None
) -> list[Bucket]:
    """Every step between the moments, empty ones too. Steps begin at whole multiples of their length, so that they stay
    where they are as time goes on: the first may reach back before the first moment, and counts from it on."""
    since, until = between
    numbers = range(int(since.timestamp()) // width_s, int(until.timestamp()) // width_s + 1)
    found: dict[int, dict[str, Any]] = {number: {} for number in numbers}

    def put(number: int, **values: object) -> None:
        """A database that rounds seconds up may name the step after the last."""
        found[min(number, numbers[-1])] |= values

    for number, questions, _, *tokens, _ in session.execute(token_series(tenant_id, since, width_s)):
        put(number, questions=questions, **dict(zip(_TOKENS, tokens, strict=True)))
    for number, mode, median, _ in session.execute(ttft_series(tenant_id, since, width_s)):
        put(number, **{_MS_OF[mode]: median})
    if known is not None:
        for number, median, _ in session.execute(full_series(tenant_id, since, width_s, known.price.terms)):
            put(number, stitched_in_full_ms=median)
    return [Bucket(start=datetime.fromtimestamp(number * width_s, UTC), **found[number]) for number in numbers]


_TOKENS = ("cached", "stitched", "recomputed", "computed")
