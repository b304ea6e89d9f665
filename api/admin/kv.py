"""The pages of stored KV: its sizes and actions on it; a plan of its space, speed and worth; its writer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.charts import AxisLabel, AxisScale, Chart, ChartLine, Dot
from api.admin.format import size
from api.admin.shell import AdminRequest, page
from ragkv.answer.recompute import Recomputing
from ragkv.errors import Rejected
from ragkv.kv.store import KVStore
from ragkv.prefill.writer import SUFFICIENT_KL, Card
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.collections.collections import num_documents
from ragkv.service.documents.listing import DocumentFilter, list_documents
from ragkv.service.kv_admin.usage import (
    CollectionKV,
    KVAmount,
    KVOverview,
    kv_of_collections,
    kv_of_documents,
    overview,
)
from ragkv.service.parts import Parts
from ragkv.service.planning.plan import DISK, NETWORK, TIERS, CostPlan, Device, Load, by_name, plan
from ragkv.service.planning.shape import known_models, shape_of
from ragkv.service.writers import writers
from ragkv.settings import Settings

DOCUMENTS_A_PAGE = 25
COLLECTIONS_SHOWN = 50
NOTHING = KVAmount(0, 0, 0)
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
LABELS_ACROSS = 4


@dataclass(frozen=True, slots=True)
class TierBar:
    """One bar of a chart: `value` bytes (None if unknown), drawn as `width` percent."""

    kind: str
    name: str
    what: str
    value: int | None
    width: float


@get("/kv", sync_to_thread=True)
def kv_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    kv_store: NamedDependency[KVStore],
    default_collection: NamedDependency[CollectionRef],
    collection: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render bytes by tier and collection, and documents with their KV, of all collections or of one."""
    tenant_id = request.user.tenant_id
    seen = overview(tenant_id, database, settings, kv_store, default_collection)
    collections = list(kv_of_collections(tenant_id, database))
    collection_id = collection_ref(tenant_id, collection, database).collection_id if collection else None
    documents = list_documents(DocumentFilter(tenant_id, collection_id), DOCUMENTS_A_PAGE, cursor, database)
    kv = kv_of_documents([document.id for document in documents.items], database)
    return page(
        request,
        "kv.html",
        seen=seen,
        collections=collections_shown(collections, collection),
        num_collections=len(collections),
        tiers=tier_bars(seen),
        loads={tier.tier: tier for tier in seen.loads},
        largest=max((collection_kv.bytes for collection_kv in collections), default=0),
        documents=documents,
        kept={document.id: kv.get(document.id, NOTHING) for document in documents.items},
        chosen=collection,
        cursor=cursor,
    )


def collections_shown(collections: Sequence[CollectionKV], selected: str) -> list[CollectionKV]:
    """Collections with the most KV, and the one that is chosen by its id or name, in the order given."""
    most = {
        collection.id
        for collection in nlargest(COLLECTIONS_SHOWN, collections, key=lambda collection: collection.bytes)
    }
    return [
        collection
        for collection in collections
        if collection.id in most or selected in (collection.id, collection.name)
    ]


def tier_bars(seen: KVOverview) -> list[TierBar]:
    """Bars for device, page cache, disk and object store on one scale."""
    device, host, disk = seen.tiers.device.capacity_bytes, seen.tiers.host.bytes, seen.tiers.disk.bytes
    used = seen.tiers.device.used_bytes
    in_use = "" if used is None else f"; {size(used)} in use now"
    remote = seen.tiers.remote
    rows = [
        ("computed", "Device", f"size of the engine's own cache, shared by all tenants{in_use}", device),
        ("cached", "Page cache", "the part of the files that is in this machine's memory", host),
        ("stitched", "Disk", "all files" if remote is None else "files on this machine", disk),
    ]
    if remote is not None:
        rows.append(("remote", "Object store", "files with a copy there", remote.bytes))
    longest = max((value for *_, value in rows if value), default=1)
    return [TierBar(kind, name, what, value, (value or 0) / longest * 100) for kind, name, what, value in rows]


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
    figures |= _numbers(request.query_params)
    result, problem = None, ""
    try:
        result = _plan(model, figures, model_folder)
    except Rejected as error:
        problem = str(error)
    bars = [(option, min(100.0, FULL_PREFILL / option.sooner)) for option in result.options] if result else ()
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


def _plan(model: str, figures: dict[str, float], model_folder: Path) -> CostPlan:
    """The plan for the figures of the form. Raises Rejected for figures that cannot be, for one that is no number, too
    small or too large, and for a model that is not among the known: a path is never read."""
    for name in FIGURES:
        if not (figures[name] == 0 or SMALLEST <= abs(figures[name]) <= LARGEST):
            raise Rejected(f"{name.replace('_', ' ')}: give a number from {SMALLEST:g} to {LARGEST:g}, or 0")
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
    """The figures of the form that the query gives; not a number (NaN) for one that is none."""
    numbers = {}
    for name in FIGURES.keys() & query.keys():
        try:
            numbers[name] = float(query[name])
        except ValueError:
            numbers[name] = float("nan")
    return numbers


@get("/writer", sync_to_thread=True)
def writer_page(request: AdminRequest, parts: NamedDependency[Parts]) -> Response[str]:
    """Render the writer in use and those that may be used; for other tenants than the default, that it is not
    theirs."""
    is_owner = request.user.tenant_id == parts.default_collection.tenant_id
    choice = writers(request.user.tenant_id, parts) if is_owner else None
    cards = {writer.name: writer.card for writer in choice.available} if choice else {}
    if choice and choice.in_use:
        cards[""] = choice.in_use
    curves = {name: curve_of(card) for name, card in cards.items() if len(card.curve) > 1}  # of those that were trained
    return page(request, "writer.html", choice=choice, curves=curves, sufficient_kl=SUFFICIENT_KL)


def curve_of(card: Card) -> Chart:
    """KL on validation contexts over contexts trained on, of a card with two points or more."""
    last = card.curve[-1][0]
    scale = AxisScale(max(kl for _, kl in card.curve))
    dots = tuple(Dot(samples / last * 100, scale.y(kl)) for samples, kl in card.curve)
    labelled = card.curve[:: max(1, len(card.curve) // LABELS_ACROSS)]
    return Chart(
        across=tuple(AxisLabel(samples / last * 100, str(samples)) for samples, _ in labelled[1:]),
        up=scale.places(lambda kl: f"{kl:g}"),
        lines=(ChartLine("stitched", dots),),
    )
