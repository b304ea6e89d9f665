"""What the price of full prefill is known from: this tenant's latest prompts that ran through the model whole."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from ragkv.db.statistics import full_runs, unstitched_runs
from ragkv.statistics.price import Price, Run, fit

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.orm import Session

KNOWN_FOR = timedelta(days=7)
"""Older prompts ran on who knows which machine."""
MAX_RUNS = 200

Basis = Literal["full", "recomputed"]


@dataclass(frozen=True, slots=True)
class Known:
    """A price and where it is from: so many questions in full or, without any, ones of which nothing was stitched."""

    price: Price
    basis: Basis
    runs: int


def known_price(session: "Session", tenant_id: str, model: str, now: datetime) -> Known | None:
    """The price on this machine, with the model of that name; None until there was a prompt that ran whole."""
    known: tuple[tuple[Basis, list[Run]], ...] = (
        ("full", _runs(session, full_runs(tenant_id, model, now - KNOWN_FOR, MAX_RUNS))),
        ("recomputed", _runs(session, unstitched_runs(tenant_id, model, now - KNOWN_FOR, MAX_RUNS))),
    )
    for basis, runs in known:
        price = fit(runs)
        if price is not None:
            return Known(price, basis, len(runs))
    return None


def _runs(session: "Session", found: "Select[int, int, float]") -> list[Run]:
    return [Run(*row) for row in session.execute(found)]
