"""The planning page: how much space stored KV takes, where loading it is faster than computing it, and when it pays
off."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.answer.recompute import Recomputing
from ragkv.errors import Rejected
from ragkv.service.base.database import Database
from ragkv.service.collections.collections import num_documents
from ragkv.service.planning.plan import DISK, NETWORK, TIERS, CostPlan, Device, Load, Option, by_name, plan
from ragkv.service.planning.shape import known_models, shape_of

SERVED = "served"
FULL_PREFILL = 50.0
"""Percent of the drawing's width that full prefill takes: what is shorter is sooner."""
SMALLEST, LARGEST = 1e-6, 1e12
"""Figures that the form takes, beside 0."""
_DEVICE = Device()
FIGURES: dict[str, float] = {
    **msgspec.structs.asdict(Load()),
    "tflops": _DEVICE.tflops,
    "gpu_price": _DEVICE.price,
    **{tier.name: tier.bandwidth for tier in TIERS if tier.name in (DISK, NETWORK)},
}
"""The form's, by field."""


@get("/kv/plan", sync_to_thread=True)
def plan_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    model_folder: NamedDependency[Path],
    recomputing: NamedDependency[Recomputing],
    model: FromQuery[str] = SERVED,
) -> Response[str]:
    """Render a plan for the served model or a known one, with the figures of the query in place of usual ones."""
    figures = FIGURES | {"recomputed": recomputing.default(written=True).ratio}
    if documents := num_documents(request.user.tenant_id, database):
        figures["documents"] = documents
    result, problem = None, ""
    try:
        figures |= _numbers(request.query_params)
        result = _plan(model, figures, model_folder)
    except Rejected as error:
        problem = str(error)
    bars = [(option, width_of(option)) for option in result.options] if result else ()
    return page(
        request,
        "plan.html",
        found=result,
        bars=bars,
        problem=problem,
        given=figures,
        model=model,
        served=SERVED,
        known=list(known_models()),
    )


def width_of(option: Option) -> float:
    """Percent of the drawing's width for its first token, at most 100."""
    return min(100.0, FULL_PREFILL / option.sooner)


def _plan(model: str, figures: dict[str, float], model_folder: Path) -> CostPlan:
    """The plan for the figures of the form. Raises Rejected for figures that cannot be, and for a model that is not
    among the known: a path is never read."""
    if model != SERVED and model not in known_models():
        raise Rejected(f"no model {model[:80]}: choose from the list")
    load = Load(
        documents=int(figures["documents"]),
        tokens=int(figures["tokens"]),
        questions_per_day=figures["questions_per_day"],
        context=int(figures["context"]),
        recomputed=figures["recomputed"],
    )
    device = Device(tflops=figures["tflops"], price=figures["gpu_price"])
    tiers = by_name(TIERS, {name: figures[name] for name in (DISK, NETWORK)}, {})
    return plan(shape_of(str(model_folder) if model == SERVED else model), load, device, tiers)


def _numbers(query: Mapping[str, Any]) -> dict[str, float]:
    """The figures of the form that the query gives. Raises Rejected for a figure that is no number, or one that is too
    small or too large."""
    numbers = {}
    for name in FIGURES.keys() & query.keys():
        try:
            numbers[name] = float(query[name])
        except ValueError:
            numbers[name] = float("nan")
        if not (numbers[name] == 0 or SMALLEST <= abs(numbers[name]) <= LARGEST):
            raise Rejected(f"{name.replace('_', ' ')}: give a number from {SMALLEST:g} to {LARGEST:g}, or 0")
    return numbers
